// ShardedOptimizer: data-parallel training in which each rank keeps 1/n of the optimizer's state (ZeRO;
// Rajbhandari, Rasley, Ruwase, He 2020). docs/sharding-and-checkpoints.md is the guide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/communicator.hpp"
#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/optimizer.hpp"
#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/tensor_slice.hpp"
#include "lockstep/export.hpp"

namespace lockstep {

/// What is sharded beside the optimizer's state.
enum class ZeroStage : std::uint8_t {
  /// ZeRO-1: nothing. Gradients are views into whole buckets, written where gradient(i) says.
  optimizer = 1,
  /// ZeRO-2: the gradients. The caller keeps each one (Parameter::gradient) until mark_ready() has taken it
  /// into a
  /// bucket, which lives only until it is reduced; its memory may serve the next layer at once.
  gradients = 2,
};

struct ShardedOptions {
  std::size_t bucket_bytes = 8u << 20;        ///< Cap of a bucket; see ReducerOptions.
  std::size_t first_bucket_bytes = 1u << 20;  ///< Cap of the first: communication starts early.
  ZeroStage stage = ZeroStage::gradients;
  bool average = true;  ///< Divide by the world size; false sums.
  /// Parameters live where value(i) says, and Parameter::value is only read by the constructor. Otherwise
  /// wait_parameters() copies them to Parameter::value.
  bool values_as_views = false;
};

/// Bytes on this rank.
struct ShardedMemory {
  std::size_t values = 0;     ///< Whole parameters, registered. With values_as_views the only copy.
  std::size_t gradients = 0;  ///< Lasting: of the whole model (stage 1) or of this rank's shards (stage 2).
  std::size_t in_flight = 0;  ///< Stage 2: buckets on their way, at their most so far.
  std::size_t optimizer = 0;  ///< This rank's shards of the optimizer's slots.
};

/// Per step: forward, calling wait_parameters(i) before it reads parameter i; backward, calling mark_ready(i)
/// when gradient i is complete; wait(); perhaps clip_gradients(); step(). The reduce_scatter of a bucket
/// starts with its last gradient and runs beside backward; the all_gather of the stepped parameters starts in
/// step(), those that the forward needs first first, and runs beside the next forward.
///
/// Parameters are f32. Thread safety: mark_ready() from any thread; all else from one thread at a time.
/// Nothing else may run on the communicator between the first mark_ready() and wait(), nor between step() and
/// the last wait_parameters().
class LOCKSTEP_API ShardedOptimizer {
 public:
  /// Collective. Compares the ranks' models, options and optimizers (Error(mismatch) on all), then gives
  /// everyone rank 0's values. A type other than f32 is Error(not_supported); stage 2 without
  /// Parameter::gradient is Error(invalid_argument). `communicator` must outlive it.
  ShardedOptimizer(Communicator& communicator, std::span<const Parameter> parameters,
                   std::shared_ptr<const Optimizer> optimizer, const ShardedOptions& options = {});
  /// Local. In the midst of a step it aborts the communicator, whose peers would wait for this rank.
  ~ShardedOptimizer();
  ShardedOptimizer(ShardedOptimizer&&) noexcept;

  /// Where gradient i is written: stage 1, a view that lasts; stage 2, Parameter::gradient.
  float* gradient(std::size_t parameter) const;
  /// With values_as_views where parameter i lives; otherwise Parameter::value.
  float* value(std::size_t parameter) const;

  /// Gradient i is complete. Stage 2 copies it, and may wait for an earlier bucket to have room. Throws on a
  /// bad index, on a second call in a step, and when wait_parameters(i) was not called since step().
  void mark_ready(std::size_t parameter);
  /// Ends backward: returns when this rank's shards hold the reduced gradients. A gradient that was never
  /// marked is Error(invalid_argument) that names it; mark it and wait again. A failed collective throws its
  /// Error.
  void wait();

  /// Collective, between wait() and step(): scales all gradients by max_norm / norm when their global L2 norm
  /// is above max_norm. One all_reduce of a number. Returns the norm before.
  double clip_gradients(double max_norm);
  /// Collective: steps this rank's shards and starts to gather everyone's. Returns before the values are
  /// there.
  void step();
  /// Returns when parameter i has its new value; throws the Error of its all_gather.
  void wait_parameters(std::size_t parameter);
  void wait_parameters();  ///< All of them.

  /// For checkpoints: this rank's shards of all values and slots ("fc1.weight", "fc1.weight#momentum"), valid
  /// for its life. Parameters without an element in this rank's shard have slices of no elements.
  std::vector<TensorSlice> slices();
  /// Steps done so far.
  std::uint64_t steps() const noexcept;
  /// Collective: the slices were filled from a checkpoint of that many steps. Gathers the values.
  void restored(std::uint64_t steps);

  const BucketPlan& plan() const noexcept;
  ShardedMemory memory() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
