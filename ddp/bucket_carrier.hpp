// BucketCarrier: takes the full buckets of a step and brings back their sums, or this rank's shard of them. A
// Reducer has a direct carrier, or one that runs a CommunicationHook; a ShardedOptimizer those of sharded/.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "ddp/step_clock.hpp"
#include "ddp/wrong_result.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

class BucketCarrier {
 public:
  virtual ~BucketCarrier() = default;

  /// Before the first bucket of a plan; what came before is finished. Throws Error. The references live until
  /// the next attach.
  virtual void attach(const BucketPlan& plan, std::span<const Parameter> parameters) = 0;

  /// Whether it changes the buckets that it is given.
  virtual bool overwrites() const { return true; }

  /// Where a bucket is filled, of carriers that bring their own memory; may wait for an earlier one to be
  /// done. Null after a failure, which finish() returns and the peers know of. Any thread.
  virtual std::byte* lend(std::size_t bucket) {
    static_cast<void>(bucket);
    return nullptr;
  }

  /// Takes a bucket, in plan order; one thread at a time. An error is kept for finish().
  virtual void start(const GradientBucket& bucket) noexcept = 0;

  /// Returns when no operation touches the bucket, which has started in this step, any more. Throws its
  /// Error. Of carriers that bring buckets back one by one.
  virtual void await(std::size_t bucket) { static_cast<void>(bucket); }

  /// Whether a bucket has not begun, which finish() tells of.
  virtual bool failed() const { return false; }

  /// Ends the step: returns when no operation touches the buckets any more, with the first error.
  virtual std::optional<Error> finish() = 0;

  /// After finish(), once all ranks have judged the step. With `good` the error of a hook that cannot go on,
  /// of which the peers do not know yet.
  virtual std::optional<Error> end_step(bool good) {
    static_cast<void>(good);
    return std::nullopt;
  }

  /// After finish(): what this rank's hook did wrong in the step without harm to the others.
  virtual std::optional<WrongResult> wrong_result() const { return std::nullopt; }
};

/// Each bucket is one all_reduce in place, started on the thread that brings it: no hand-over.
/// Tells `clock` when each bucket is done. `last_first`: those from first_urgent() on are urgent.
std::unique_ptr<BucketCarrier> make_direct_carrier(Communicator& communicator, StepClock& clock,
                                                   bool last_first);

/// Buckets pass through `hook` on a thread of the carrier's own, which calls `done`, unless null, with each
/// that neither the hook nor a collective touches any more, good or not.
std::unique_ptr<BucketCarrier> make_hook_carrier(Communicator& communicator, StepClock& clock,
                                                 std::shared_ptr<CommunicationHook> hook,
                                                 std::function<void(const GradientBucket&)> done = nullptr);

}  // namespace lockstep::internal
