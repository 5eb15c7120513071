#include "bench/ddp/overlap.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "bench/ddp/model.hpp"
#include "bench/median.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

// Steps in a row, as training makes them: what one leaves on its way the next waits for. The last one's is
// waited for as well, so that a row of a few steps shows a little less than a long one would.
constexpr std::size_t kRow = 6;

/// Each layer is stepped just before the forward uses it, with either kind of reducer.
class OverlapTrainer {
 public:
  OverlapTrainer(Communicator& communicator, const DdpOptions& options, bool overlap)
      : model_(options.parameters, options.batch),
        reducer_(communicator, model_.parameters(), reducer_options(options, overlap)) {
    for (std::size_t l = 0; l < model_.layers(); ++l)
      model_.set_gradient(l, static_cast<float*>(reducer_.gradient(l)));
  }

  void run_row() {
    for (std::size_t i = 0; i < kRow; ++i) {
      forward();
      model_.backward([&](std::size_t layer) { reducer_.mark_ready(layer); });
      reducer_.wait();
    }
    reducer_.wait_gradients();
  }
  void forward() {
    model_.forward([&](std::size_t layer) {
      reducer_.wait_gradients(layer);
      model_.step(layer);
    });
  }
  void compute() {
    forward();
    model_.backward([](std::size_t) {});
  }
  const Model& model() const { return model_; }

 private:
  static ReducerOptions reducer_options(const DdpOptions& options, bool overlap) {
    ReducerOptions chosen;
    chosen.undo = options.undo;
    chosen.overlap_forward = overlap;
    if (options.bucket_bytes > 0) chosen.bucket_bytes = options.bucket_bytes;
    return chosen;
  }

  Model model_;
  Reducer reducer_;
};

}  // namespace

OverlapResult measure_overlap(Communicator& communicator, Board& board, const DdpOptions& options) {
  OverlapTrainer whole(communicator, options, false), overlapped(communicator, options, true);
  std::vector<double> step, with, compute, forward;
  const auto time = [&](std::vector<double>& into, std::size_t steps, const std::function<void()>& call) {
    board.barrier();
    const auto start = Clock::now();
    call();
    const auto taken = std::chrono::duration<double, std::milli>(Clock::now() - start);
    into.push_back(taken.count() / static_cast<double>(steps));
  };
  for (std::size_t round = 0; round < kWarmUp + options.rounds; ++round) {
    time(step, kRow, [&] { whole.run_row(); });
    time(with, kRow, [&] { overlapped.run_row(); });
    time(compute, 1, [&] { whole.compute(); });
    time(forward, 1, [&] { whole.forward(); });
  }
  for (auto* times : {&step, &with, &compute, &forward}) {
    times->erase(times->begin(), times->begin() + kWarmUp);
    board.max(*times);
  }
  std::vector<double> saved(step.size());
  std::transform(step.begin(), step.end(), with.begin(), saved.begin(), std::minus<>());
  return {whole.model().parameter_count(),
          median(step),
          median(with),
          median(saved),
          median(compute),
          median(forward)};
}

}  // namespace lockstep::bench
