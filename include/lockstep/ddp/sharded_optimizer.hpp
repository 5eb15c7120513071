// ShardedOptimizer: data-parallel training in which each rank keeps 1/n of the optimizer's state (ZeRO;
// Rajbhandari, Rasley, Ruwase, He 2020). docs/sharding-and-checkpoints.md is the guide.
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
#include "lockstep/ddp/optimizer.hpp"
#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/reducer.hpp"
#include "lockstep/ddp/tensor_slice.hpp"
#include "lockstep/export.hpp"

namespace lockstep {

/// What is sharded beside the optimizer's state.
enum class ZeroStage : std::uint8_t {
  /// ZeRO-1: nothing. Gradients are views into whole buckets, written where gradient(i) says;
  /// Parameter::gradient is null.
  optimizer = 1,
  /// ZeRO-2: the gradients. The caller keeps each one (Parameter::gradient) until mark_ready() has taken it
  /// into a bucket, which lives only until it is reduced; its memory may serve the next layer at once.
  gradients = 2,
};

/// What ReducerOptions has under the same names means the same here.
struct ShardedOptions {
  std::size_t bucket_bytes = 4u << 20;
  std::size_t first_bucket_bytes = 1u << 20;
  ZeroStage stage = ZeroStage::gradients;
  bool average = true;  ///< Divide by the world size; false sums.
  /// Parameters live where value(i) says, and Parameter::value is only read by the constructor. Otherwise
  /// wait_parameters() copies them to Parameter::value. Equal on all ranks.
  bool values_as_views = false;

  /// Which optimizer steps a parameter, instead of the constructor's: one without decay for biases and norms,
  /// another rate for a head. Null for the constructor's. It must keep the same slots; ranks are compared.
  /// Called once for each parameter, by the constructor and by add_parameters().
  std::function<std::shared_ptr<const Optimizer>(const Parameter&)> optimizer_of = nullptr;

  bool weighted = false;
  bool find_unused = false;
  UnevenInputs uneven = UnevenInputs::shadow;
  /// Stage 1; stage 2 leaves gradients alone in any case. Costs no time without a hook: the sums of this
  /// rank's shards then have memory of their own, and the views keep this rank's gradients.
  bool undo = true;
  bool check_first = false;  ///< In stage 2 whole gradients wait in buckets then.
  bool check_finite = false;
  /// It brings every rank the whole sum, of which the rank keeps its shard: in stage 2 over buckets whose
  /// memory serves others afterwards.
  std::shared_ptr<CommunicationHook> hook = nullptr;
};

/// Bytes on this rank.
struct ShardedMemory {
  std::size_t values = 0;     ///< Whole parameters, registered. With values_as_views the only copy.
  std::size_t gradients = 0;  ///< Lasting: of the whole model (stage 1) or of this rank's shards (stage 2).
  std::size_t undo = 0;       ///< Stage 1: what lets gradients survive a step that fails.
  std::size_t in_flight = 0;  ///< Stage 2: buckets on their way, at their most so far.
  std::size_t optimizer = 0;  ///< This rank's shards of the optimizer's slots, and of values in f32.
};

/// Per step: forward, calling wait_parameters(i) before it reads parameter i; backward, calling mark_ready(i)
/// when gradient i is complete; wait(); perhaps clip_gradients(); step(). The reduce_scatter of a bucket
/// starts with its last gradient and runs beside backward; the all_gather of the stepped parameters starts in
/// step(), those that the forward needs first first, and runs beside the next forward.
///
/// Parameters are f32, bf16 or f16. Of the latter each rank keeps its shards in f32 as well, which are
/// stepped and then rounded, so that small steps are not lost. Gradients, steps that fail and the modes are
/// those of the Reducer, whose errors say "gradients of step 3: ...".
///
/// Thread safety: mark_ready() and mark_unused() from any thread; all else from one thread at a time. Nothing
/// else may run on the communicator between begin_step() or the first mark, and wait(), nor between step()
/// and the last wait_parameters().
class LOCKSTEP_API ShardedOptimizer {
 public:
  /// Collective. Compares the ranks' models, options, optimizers and rates (Error(mismatch) on all), then
  /// gives everyone rank 0's values. Another type, or a hook that leaves gradients local, is
  /// Error(not_supported); stage 2 without Parameter::gradient, and stage 1 with it, is
  /// Error(invalid_argument). The values must outlive it; the handle `communicator` may be moved or go first.
  ShardedOptimizer(Communicator& communicator, std::span<const Parameter> parameters,
                   std::shared_ptr<const Optimizer> optimizer, const ShardedOptions& options = {});
  /// Local, but for values that step() has begun to gather: it returns when all ranks have, since the peers
  /// need this rank's, or when the operations' deadline has passed; wait_parameters() first shows an error.
  /// In the midst of a step it aborts the communicator, whose peers would wait for this rank.
  ~ShardedOptimizer();
  ShardedOptimizer(ShardedOptimizer&&) noexcept;

  /// Where gradient i is written: stage 1, a view that lasts; stage 2, Parameter::gradient.
  void* gradient(std::size_t parameter) const;
  /// With values_as_views where parameter i lives; otherwise Parameter::value.
  void* value(std::size_t parameter) const;

  /// Gradient i is complete. Stage 2 copies it, and may wait for an earlier bucket to have room; without
  /// memory for the bucket the step fails on all ranks, in wait(). Throws on a bad index, on a second call in
  /// a step, and when wait_parameters(i) was not called since step().
  void mark_ready(std::size_t parameter);
  /// As Reducer::mark_unused.
  void mark_unused(std::size_t parameter);
  /// Ends backward: returns when this rank's shards hold the reduced gradients and all ranks know that every
  /// rank's step is good. Throws as Reducer::wait does, the same on every rank: leave out step() then, and
  /// the next step may begin.
  void wait();

  /// As Reducer::no_sync: gradients stay on this rank meanwhile. In stage 2 the caller adds them up where it
  /// keeps them.
  [[nodiscard]] Reducer::NoSync no_sync();
  /// As Reducer::begin_step; a rank without samples calls wait() and step() as all do.
  bool begin_step(std::uint64_t samples);
  /// As Reducer::used.
  bool used(std::size_t parameter) const;

  /// Collective; after step() or a step that was left out, before the next mark. As Reducer::add_parameters:
  /// these parameters are numbered on, their values become rank 0's, and values, gradients and state of the
  /// others stay where and what they are. The optimizer counts their steps from 1. Returns when all values
  /// are there, as wait_parameters().
  void add_parameters(std::span<const Parameter> added);

  /// Collective, between wait() and step(): scales all gradients by max_norm / norm when their global L2 norm
  /// is above max_norm. One all_reduce of a number. Returns the norm before.
  double clip_gradients(double max_norm);
  /// Collective: steps this rank's shards and starts to gather everyone's. Returns before the values are
  /// there. Once for each wait() that returned, before the next mark; otherwise Error(invalid_argument).
  /// Every parameter is stepped: momentum and decay move those that no rank used, whose gradients are zero.
  /// What the optimizer throws on one rank is an Error on all of them, and the communicator is revoked.
  void step();
  /// Returns when parameter i has its new value; throws the Error of its all_gather.
  void wait_parameters(std::size_t parameter);
  void wait_parameters();  ///< All of them.

  /// For checkpoints: this rank's shards of all values and slots ("fc1.weight", "fc1.weight#momentum"), valid
  /// until parameters join. Of those that joined, also when ("fc1.weight#joined"): to load such a checkpoint
  /// construct with the parameters that were there first, and add_parameters() the others. Parameters without
  /// an element in this rank's shard have slices of no elements. With a hook also what that keeps, as
  /// Reducer::slices().
  std::vector<TensorSlice> slices();
  /// To load a checkpoint: the same, but with a hook, whose state depends on the number of ranks that saved.
  std::vector<TensorSlice> slices(const CheckpointInfo& saved);
  /// Steps done so far.
  std::uint64_t steps() const noexcept;
  /// Collective: the slices were filled from a checkpoint of that many steps. Gathers the values. Gradients
  /// that were reduced and not stepped are of the run before, and not stepped any more.
  void restored(std::uint64_t steps);

  const BucketPlan& plan() const noexcept;
  /// Of the gradients' way, as the Reducer's.
  StepStatistics statistics() const;
  std::string report() const;
  ShardedMemory memory() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
