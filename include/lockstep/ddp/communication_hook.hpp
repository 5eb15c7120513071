// CommunicationHook: how the gradients of a bucket become their sum over all ranks, when all_reduce as they
// are is not what is wanted: compressed, quantised, averaged less often, or the user's own way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/communicator.hpp"
#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/tensor_slice.hpp"
#include "lockstep/export.hpp"

namespace lockstep {

/// A full bucket on its way. The same on all ranks but for `data` and what it points to.
struct GradientBucket {
  std::size_t index = 0;   ///< In BucketPlan::buckets.
  std::uint64_t step = 0;  ///< Counts from 1, as in every message of the reducer.
  DataType type = DataType::f32;
  void* data = nullptr;   ///< This rank's gradients, in registered memory; the sum is to replace them.
  std::size_t count = 0;  ///< Elements, alignment gaps included (they are zero and stay unread).
  bool average = true;    ///< The average over all ranks is wanted; otherwise the sum.
  std::span<const GradientPart> parts;  ///< What lies where. Valid until the hook is attached anew.

  std::size_t bytes() const noexcept { return count * size_of(type); }
  ReduceOp op() const noexcept { return average ? ReduceOp::avg : ReduceOp::sum; }
};

/// Something that a hook keeps between steps: a run of f32, as elements of a tensor whose name says what it
/// is and of which parameter ("fc1.weight#residual"), so that it survives another layout of the buckets.
struct HookTensor {
  TensorSlice slice;
  /// Each rank has its own, such as what it could not send: resumed on another number of ranks, they are
  /// dealt out and added up. Otherwise the values are equal on all ranks.
  bool of_each_rank = true;
};

/// Brings buckets to their sums. Calls come in the order of the plan, the same on all ranks:
///   attach, then per step start(0), start(1), ..., with finish(0), finish(1), ... in between: finish(b)
///   comes after start(b), often after start(b + 1), so that encoding and decoding overlap with the wire;
///   at last end_step.
/// Never two at once, but for bytes_on_wire(): attach, start and finish on a thread of the reducer's own,
/// which rounds to nearest and keeps subnormals whatever the program's threads do; end_step and state on that
/// of the caller.
/// A hook belongs to one reducer at a time, which others are refused while it lives. It keeps its state
/// (error feedback, warm starts) per bucket index. A bucket's data stays where it is from start(b) to
/// finish(b); in ShardedOptimizer's stage 2 it is elsewhere in the next step.
///
/// What a hook throws ends the step on every rank with an error that names the hook; the communicator is then
/// revoked, since nobody knows which of its collectives the hook still called. What it throws in
/// end_step(true), of a step that is good everywhere, ends the next one: on that rank its first mark or
/// begin_step() tells, on the others wait().
class LOCKSTEP_API CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;

  /// For messages; equal on all ranks, with all settings that must be: "powersgd rank 4". Compared when the
  /// reducer is constructed.
  virtual std::string name() const = 0;

  /// True keeps large gradients whole (ReducerOptions::split_large is then ignored), for hooks that see
  /// matrices. Equal on all ranks.
  virtual bool wants_whole_gradients() const { return false; }

  /// True of hooks that leave each rank its own gradients in some steps. A ShardedOptimizer and
  /// ReducerOptions::weighted, which need sums, refuse them. Equal on all ranks.
  virtual bool leaves_gradients_local() const { return false; }

  /// Once per plan: before the first step, and again when the buckets were rebuilt, parameters frozen or
  /// added (state by bucket index begins anew, but for what state() names). `parameters` are the reducer's.
  /// May call collectives. The references live until the next attach or the end of the reducer.
  virtual void attach(Communicator& communicator, const BucketPlan& plan,
                      std::span<const Parameter> parameters) {
    static_cast<void>(communicator), static_cast<void>(plan), static_cast<void>(parameters);
  }

  /// Begins to sum `bucket`. May run collectives to their end, start others, and return the Work of the last
  /// one (a default Work when none is left). Nothing else runs on the communicator meanwhile but what this
  /// hook started for earlier buckets.
  [[nodiscard]] virtual Work start(Communicator& communicator, const GradientBucket& bucket) = 0;

  /// The Work of start(bucket) is done: leaves the result in bucket.data. Starts no collective, which could
  /// come before a start() on one rank and after it on another.
  virtual void finish(const GradientBucket& bucket) { static_cast<void>(bucket); }

  /// The step is over, and all ranks have judged it alike. If it was not good (a gradient marked twice or
  /// never, or not finite; a result of the wrong size; a lost rank), gradients are put back and may come
  /// again in a step of the same number: what the hook keeps must then be what it was before that step's
  /// first start(), or the step that is repeated gives another result than one that succeeds at once. Some
  /// buckets of such a step may not have been started, or not finished. Calls no collectives.
  virtual void end_step(bool good) { static_cast<void>(good); }

  /// What the next steps depend on, but for their number: for checkpoints, and for a new plan, which the
  /// reducer carries it over to. Between steps, after attach(). Names, shapes and elements are the same with
  /// any number of ranks; on a single one, which has nothing to send, `data` may be null. A name that a
  /// checkpoint has already, of a parameter or of what a ShardedOptimizer keeps of one, is refused: when the
  /// reducer is made, parameters join or slices are asked for.
  virtual std::vector<HookTensor> state() { return {}; }

  /// Bytes of this rank's gradients, as encoded, that start() has handed to collectives since construction.
  /// From any thread.
  virtual std::uint64_t bytes_on_wire() const = 0;
};

/// What a hook written as one function gives back. Without `data` the result is in the bucket when `work` is
/// done. With it the result is there, in `count` elements of the bucket's type, which must be the bucket's
/// count; it stays valid until the function is called again for the same bucket index.
struct HookResult {
  Work work;
  const void* data = nullptr;
  std::size_t count = 0;
};

/// A hook from one function, called as CommunicationHook::start is. A result of another size than the
/// bucket's fails the step on every rank, with an error that names rank, bucket and size, and leaves the
/// bucket alone. A function that keeps something from step to step cannot learn that a step failed: derive
/// from CommunicationHook for its end_step().
/// `bytes_on_wire` of such a hook counts whole buckets.
LOCKSTEP_API std::shared_ptr<CommunicationHook> make_hook(
    std::string name, std::function<HookResult(Communicator&, const GradientBucket&)> function);

}  // namespace lockstep
