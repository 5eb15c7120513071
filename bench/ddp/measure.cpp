#include "bench/ddp/measure.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "bench/ddp/model.hpp"
#include "bench/ddp/two_hosts.hpp"
#include "bench/median.hpp"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

class Trainer {
 public:
  Trainer(Communicator& communicator, const DdpOptions& options)
      : model_(options.parameters, options.batch),
        parameters_(model_.parameters()),
        hook_(hook_by_name(options.hook)),
        reducer_(communicator, parameters_, reducer_options(options)) {
    for (std::size_t l = 0; l < model_.layers(); ++l)
      model_.set_gradient(l, static_cast<float*>(reducer_.gradient(l)));
    const auto& first = reducer_.plan().buckets.front().parts;
    last_of_first_bucket_ = std::min_element(first.begin(), first.end(), [](const auto& a, const auto& b) {
                              return a.parameter < b.parameter;
                            })->parameter;
  }

  void step() {
    model_.forward();
    model_.backward([&](std::size_t layer) { reducer_.mark_ready(layer); });
    reducer_.wait();
    model_.step();
  }
  /// Gives milliseconds of backward after the first bucket was full.
  double step_alone() {
    Clock::time_point full;
    model_.forward();
    model_.backward([&](std::size_t layer) {
      if (layer == last_of_first_bucket_) full = Clock::now();
    });
    const double after = milliseconds(Clock::now() - full);
    model_.step();
    return after;
  }
  void communicate() {
    for (std::size_t l = model_.layers(); l-- > 0;) reducer_.mark_ready(l);
    reducer_.wait();
  }

  const Model& model() const { return model_; }
  const Reducer& reducer() const { return reducer_; }
  /// Of this rank's gradients so far.
  std::uint64_t bytes_given() const { return hook_ ? hook_->bytes_on_wire() : 0; }
  bool has_hook() const { return hook_ != nullptr; }

 private:
  ReducerOptions reducer_options(const DdpOptions& options) const {
    ReducerOptions chosen;
    chosen.hook = hook_;
    chosen.undo = options.undo;
    chosen.check_first = options.check_first;
    if (options.bucket_bytes > 0) chosen.bucket_bytes = options.bucket_bytes;
    return chosen;
  }

  Model model_;
  std::vector<Parameter> parameters_;
  std::shared_ptr<CommunicationHook> hook_;
  Reducer reducer_;
  std::size_t last_of_first_bucket_ = 0;
};

/// Bytes of one step, by the count that fits the number of hosts.
class ByteCount {
 public:
  ByteCount(const Trainer& trainer, bool by_interface, int rank)
      : trainer_(trainer), by_interface_(by_interface && rank == 0) {}
  void begin() { before_ = now(); }
  void end() { bytes_.push_back(static_cast<double>(now() - before_)); }
  std::uint64_t per_step() const {
    if (!by_interface_ && !trainer_.has_hook()) return trainer_.reducer().statistics().bytes;
    return static_cast<std::uint64_t>(median(bytes_));
  }

 private:
  std::uint64_t now() const { return by_interface_ ? TwoHosts::bytes_sent(0) : trainer_.bytes_given(); }

  const Trainer& trainer_;
  bool by_interface_;
  std::uint64_t before_ = 0;
  std::vector<double> bytes_;
};

}  // namespace

DdpResult measure_ddp(Communicator& communicator, Board& board, const DdpOptions& options) {
  Trainer trainer(communicator, options);
  ByteCount bytes(trainer, options.hosts > 1, communicator.rank());
  std::vector<double> step, compute, wire, backward;
  const auto time = [&](const std::function<void()>& call) {
    board.barrier();
    const auto start = Clock::now();
    call();
    return milliseconds(Clock::now() - start);
  };
  for (std::size_t round = 0; round < kWarmUp + options.rounds; ++round) {
    board.barrier();  // Nobody sends any more.
    bytes.begin();
    const double with = time([&] { trainer.step(); });
    board.barrier();
    bytes.end();
    double after = 0;
    const double without = time([&] { after = trainer.step_alone(); });
    const double alone = time([&] { trainer.communicate(); });
    if (round < kWarmUp) continue;
    step.push_back(with);
    compute.push_back(without);
    wire.push_back(alone);
    backward.push_back(after);
  }
  for (auto* times : {&step, &compute, &wire, &backward}) board.max(*times);
  std::vector<double> exposed(step.size());
  std::transform(step.begin(), step.end(), compute.begin(), exposed.begin(), std::minus<>());
  return {trainer.model().parameter_count(),
          trainer.reducer().statistics().buckets,
          median(compute),
          median(exposed),
          median(wire),
          median(backward),
          bytes.per_step()};
}

}  // namespace lockstep::bench
