#include "bench/ddp/zero.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "bench/ddp/model.hpp"
#include "bench/median.hpp"
#include "bench/process_memory.hpp"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Costs what any rate costs, and leaves the values alone.
std::shared_ptr<AdamW> optimizer_at_rest() { return std::make_shared<AdamW>(0.0); }

/// AdamW on memory of its own: as many elements as a rank steps.
class StateOf {
 public:
  explicit StateOf(std::size_t elements)
      : values_(elements), gradients_(elements), first_(elements), second_(elements) {}
  void step() {
    const std::span<float> slots[] = {first_, second_};
    optimizer_->step({1, values_, gradients_, slots});
  }

 private:
  std::shared_ptr<AdamW> optimizer_ = optimizer_at_rest();
  std::vector<float> values_, gradients_, first_, second_;
};

class ZeroTrainer {
 public:
  virtual ~ZeroTrainer() = default;
  /// A whole step; `at_once`: all values are there before forward begins.
  virtual void step(bool at_once) = 0;
  virtual void gather() = 0;
  virtual ShardedMemory memory() const = 0;
  Model& model() { return model_; }

 protected:
  explicit ZeroTrainer(const DdpOptions& options) : model_(options.parameters, options.batch) {}
  Model model_;
};

/// Stage 0: a reducer, and the state of all parameters on every rank.
class WholeTrainer final : public ZeroTrainer {
 public:
  WholeTrainer(Communicator& communicator, const DdpOptions& options)
      : ZeroTrainer(options),
        reducer_(communicator, model_.parameters(),
                 {.undo = options.undo, .check_first = options.check_first}) {
    for (std::size_t l = 0; l < model_.layers(); ++l)
      model_.set_gradient(l, static_cast<float*>(reducer_.gradient(l)));
    slots_.assign(2 * model_.layers(), std::vector<float>(layer()));
  }

  void step(bool) override {
    for (std::size_t l = 0; l < model_.layers(); ++l) {
      const std::span<float> slots[] = {slots_[2 * l], slots_[2 * l + 1]};
      optimizer_->step(
          {1, {model_.weight(l), layer()}, {static_cast<float*>(reducer_.gradient(l)), layer()}, slots});
    }
    model_.forward();
    model_.backward([&](std::size_t l) { reducer_.mark_ready(l); });
    reducer_.wait();
  }
  void gather() override {}
  ShardedMemory memory() const override {
    const std::size_t bytes = model_.parameter_count() * sizeof(float);
    return {.values = bytes,
            .gradients = bytes,
            .undo = reducer_.undo_bytes(),
            .in_flight = 0,
            .optimizer = 2 * bytes};
  }

 private:
  std::size_t layer() const { return model_.width() * model_.width(); }
  Reducer reducer_;
  std::shared_ptr<AdamW> optimizer_ = optimizer_at_rest();
  std::vector<std::vector<float>> slots_;
};

class ShardedTrainer final : public ZeroTrainer {
 public:
  ShardedTrainer(Communicator& communicator, const DdpOptions& options)
      : ZeroTrainer(options),
        one_gradient_(options.zero == 2 ? model_.width() * model_.width() : 0),
        sharded_(communicator, parameters(), optimizer_at_rest(), sharded_options(options)) {
    for (std::size_t l = 0; l < model_.layers(); ++l) {
      model_.set_gradient(l, static_cast<float*>(sharded_.gradient(l)));
      model_.set_weight(l, static_cast<float*>(sharded_.value(l)));
    }
  }

  void step(bool at_once) override {
    if (reduced_) sharded_.step();  // Not before the first step.
    if (at_once) sharded_.wait_parameters();
    model_.forward([&](std::size_t l) { sharded_.wait_parameters(l); });
    model_.backward([&](std::size_t l) { sharded_.mark_ready(l); });
    sharded_.wait();
    reduced_ = true;
  }
  void gather() override { sharded_.restored(sharded_.steps()); }
  ShardedMemory memory() const override { return sharded_.memory(); }

 private:
  static ShardedOptions sharded_options(const DdpOptions& options) {
    ShardedOptions chosen;
    chosen.stage = static_cast<ZeroStage>(options.zero);
    chosen.values_as_views = true;
    chosen.undo = options.undo;
    if (options.bucket_bytes > 0) chosen.bucket_bytes = options.bucket_bytes;
    return chosen;
  }
  /// In stage 2 all layers write their gradients to one place, in turns.
  std::vector<Parameter> parameters() {
    std::vector<Parameter> list = model_.parameters();
    for (Parameter& p : list) p.gradient = one_gradient_.data();
    return list;
  }

  std::vector<float> one_gradient_;
  ShardedOptimizer sharded_;
  bool reduced_ = false;
};

std::unique_ptr<ZeroTrainer> make_trainer(Communicator& communicator, const DdpOptions& options) {
  if (options.zero == 0) return std::make_unique<WholeTrainer>(communicator, options);
  return std::make_unique<ShardedTrainer>(communicator, options);
}

}  // namespace

ZeroResult measure_zero(Communicator& communicator, Board& board, const DdpOptions& options) {
  board.barrier();
  const auto before = static_cast<double>(proportional_bytes());
  const auto trainer = make_trainer(communicator, options);
  for (std::size_t warm = 0; warm < kWarmUp; ++warm) trainer->step(false);
  board.barrier();
  ZeroResult result{.parameters = trainer->model().parameter_count(),
                    .memory = trainer->memory(),
                    .resident_bytes = static_cast<double>(proportional_bytes()) - before};

  const auto ranks = static_cast<std::size_t>(options.zero == 0 ? 1 : communicator.size());
  StateOf own((result.parameters + ranks - 1) / ranks);
  const auto compute = [&] {
    own.step();
    trainer->model().forward();
    trainer->model().backward([](std::size_t) {});
  };
  std::vector<double> step, at_once, gather, alone;
  const auto time = [&](std::vector<double>& into, const std::function<void()>& call) {
    board.barrier();
    const auto start = Clock::now();
    call();
    into.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  };
  for (std::size_t round = 0; round < options.rounds; ++round) {
    time(step, [&] { trainer->step(false); });
    time(at_once, [&] { trainer->step(true); });
    time(alone, compute);
  }
  // Last: a step would begin with the gradients of the step before, which this drops.
  for (std::size_t round = 0; round < options.rounds; ++round) time(gather, [&] { trainer->gather(); });
  for (auto* times : {&step, &at_once, &gather, &alone}) board.max(*times);
  result.step_ms = median(step);
  result.at_once_ms = options.zero == 0 ? result.step_ms : median(at_once);
  result.gather_ms = options.zero == 0 ? 0 : median(gather);
  result.compute_ms = median(alone);
  return result;
}

}  // namespace lockstep::bench
