// Local SGD: ranks train on their own for some steps, then average their parameters.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "lockstep/ddp/communication_hook.hpp"
#include "lockstep/export.hpp"

namespace lockstep {

struct LocalSgdOptions {
  /// The first step without communication of gradients, counted from 1. Later than 1 it is post-local SGD
  /// (Lin, Stich, Patel, Jaggi 2020): gradients are averaged at first, while they change fast.
  std::uint64_t start_step = 1;
  std::uint64_t period = 8;  ///< Steps between two averages of the parameters; at least 1.
};

/// A hook and an averager in one: as the hook it leaves gradients where they are from start_step on; after
/// each optimizer step the trainer calls average_parameters(), which averages every `period` steps. In
/// between the replicas differ, so do not ask the reducer to compare them. Optimizer state stays each rank's
/// own. Not with a ShardedOptimizer, nor with ReducerOptions::weighted. Called by the trainer's thread,
/// beside the reducer (CommunicationHook says which calls are its).
///
///   auto local = std::make_shared<LocalSgd>(LocalSgdOptions{.period = 8});
///   Reducer reducer(communicator, parameters, {.hook = local});
///   ... reducer.wait(); optimizer.step(); local->average_parameters();
class LOCKSTEP_API LocalSgd final : public CommunicationHook {
 public:
  /// Throws Error(invalid_argument) on a period of 0.
  explicit LocalSgd(const LocalSgdOptions& options);

  /// Collective, between wait() and the next forward. True when it averaged; a second call after one step
  /// does nothing. Call it with force after the last step, so that all ranks end with one model. The reducer
  /// may have gone by then, its parameters' values not.
  bool average_parameters(bool force = false);

  std::string name() const override;
  bool leaves_gradients_local() const override { return true; }
  void attach(Communicator& communicator, const BucketPlan& plan,
              std::span<const Parameter> parameters) override;
  Work start(Communicator& communicator, const GradientBucket& bucket) override;
  void end_step(bool good) override;
  /// Of gradients and of parameters.
  std::uint64_t bytes_on_wire() const override { return bytes_.load(std::memory_order_relaxed); }

 private:
  bool due(std::uint64_t step) const;

  const LocalSgdOptions options_;
  std::optional<Communicator> communicator_;  // A handle of its own, and a list: the reducer may go first.
  std::vector<Parameter> parameters_;
  std::uint64_t started_ = 0;  // The step under way.
  std::uint64_t step_ = 0;     // The last good one.
  bool averaged_ = false;      // After that one. Its number tells nothing: a checkpoint may bring it again.
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace lockstep
