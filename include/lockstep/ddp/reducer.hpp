// Reducer: averages gradients over all ranks while backward runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/communicator.hpp"
#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/parameter.hpp"
#include "lockstep/ddp/reducer_options.hpp"
#include "lockstep/ddp/statistics.hpp"
#include "lockstep/ddp/tensor_slice.hpp"
#include "lockstep/export.hpp"

namespace lockstep {

struct CheckpointInfo;

/// With ReducerOptions::check_finite: a rank's gradient has an infinity or a NaN. Thrown by wait() on every
/// rank, of the same parameter and with the same culprit(). Leave the step out (no optimizer step) and go
/// on.
class LOCKSTEP_API NonFiniteGradient : public Error {
 public:
  NonFiniteGradient(const std::string& message, int culprit, std::size_t parameter);
  std::size_t parameter() const noexcept { return parameter_; }

 private:
  std::size_t parameter_;
};

/// Averages gradients over all ranks while backward runs. Construct once; then per step: run backward,
/// calling mark_ready(i) when gradient i is complete; wait(); step the optimizer. docs/ddp.md is the guide.
///
/// Thread safety: gradient(), mark_ready(), mark_unused() and plan() from any thread while backward runs,
/// abort() at any time; everything else from one thread at a time, and while no other thread is in a call.
///
/// Errors of use (a gradient marked twice, or never; a hook's result of the wrong size) fail the step on
/// every rank: wait() throws the same Error(invalid_argument) everywhere, naming rank and parameters;
/// afterwards the next step may begin. Gradients are then as backward left them, to the last bit, so they may
/// be marked again (see ReducerOptions::undo).
class LOCKSTEP_API Reducer {
  struct State;

 public:
  /// Collective. Checks that all ranks have the same names, shapes, types and options: Error(mismatch), on
  /// every rank, names the first difference and the rank; an unusable parameter (null pointer, integer type,
  /// a gradient that views would leave unread) of one rank is an error on all that names it. Then every
  /// rank's values become rank 0's. The values must outlive the reducer. It keeps the group alive: the handle
  /// `communicator` may be moved or go first.
  Reducer(Communicator& communicator, std::span<const Parameter> parameters,
          const ReducerOptions& options = {});
  /// Local, but for gradients that overlap_forward has left on their way: it returns when their collectives
  /// have ended, which all ranks have started. In the midst of a step, which begin_step() or the first mark
  /// begins, it aborts the communicator: the peers wait for this rank's gradients.
  ~Reducer();
  Reducer(Reducer&&) noexcept;

  // ---- a step

  /// Where gradient i lives. With views: in its bucket, aligned to BucketPlan::kAlignment, zero at first,
  /// valid for the reducer's life (see ReducerOptions::rebuild for the exception that must be asked for).
  /// Without: Parameter::gradient. Throws on a bad index.
  void* gradient(std::size_t parameter) const;

  /// Gradient i is complete; it must not be touched until wait() returned. Callable from any thread, once per
  /// parameter and step (see ReducerOptions::static_graph). The last gradient of a bucket starts its
  /// all_reduce, which then progresses on the library's thread. Buckets start in plan order on all ranks
  /// whatever the order of calls. Throws on a bad index, on a surplus call in one step, which fails the
  /// step, and when wait() has been called and not returned: then the call counts for nothing. Marks of
  /// frozen parameters are ignored. A collective that fails here is reported by wait().
  void mark_ready(std::size_t parameter);

  /// Gradient i will not be computed in this step: it counts as zero on this rank, as find_unused would find
  /// in wait(), but in time for its bucket to start early. As mark_ready() otherwise; with find_unused only.
  void mark_unused(std::size_t parameter);

  /// Ends the step: returns when all gradients are averaged, and all ranks know that every rank's step is
  /// good. Error(invalid_argument) and NonFiniteGradient (see there) end the step without harm to the
  /// reducer; a failed collective, or a hook that throws, throws its Error after every bucket came to rest:
  /// the communicator is then revoked. Gradients are as they were in either case. A good step that cannot
  /// rebuild the buckets afterwards (ReducerOptions::rebuild) returns, and the communicator is revoked: the
  /// next step's first mark says why on the rank that has no memory, its wait() on the others.
  void wait();

  /// With ReducerOptions::overlap_forward, after wait(): returns when gradient i is averaged (and copied to
  /// Parameter::gradient, without views). Call it before gradient i is read: by a forward that steps each
  /// parameter just before it uses it. Every gradient is waited for before the next step's first mark, which
  /// otherwise throws Error(invalid_argument) and has no effect; begin_step(), no_sync(), clip_gradients(),
  /// freeze(), add_parameters() and restored() wait for all. Throws the Error of a collective that failed:
  /// the communicator is revoked, and gradients not waited for before are undefined, now and in later calls.
  /// The step has ended all the same, so go back to a checkpoint if parameters were stepped in between.
  /// Without the option wait() has waited for all, and this returns at once.
  void wait_gradients(std::size_t parameter);
  void wait_gradients();  ///< All of them.

  // ---- modes

  /// While one lives, gradients stay on this rank: mark_ready() takes note that gradient i was used, wait()
  /// does nothing. For accumulation: backward adds to the gradients in all micro-batches, the last of which
  /// runs without a NoSync. May be created between steps only. A gradient used under NoSync and not marked in
  /// the last micro-batch takes part as it is, with find_unused, or where a static graph never marks it
  /// there; also when a step that failed is repeated. After begin_step(0) none takes part. A mark that
  /// another thread is at when the NoSync ends is waited for; later ones are marks of the last micro-batch.
  class LOCKSTEP_API NoSync {
   public:
    explicit NoSync(Reducer& reducer);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    State& state_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  /// Collective; call before each step when ranks may have different numbers of batches or samples, on all
  /// ranks or on none. `samples` is the size of this rank's batch, 0 when it has no more. True: the step goes
  /// on; a rank with 0 samples then computes nothing, its gradients count as zero, and it calls wait() (and
  /// steps its optimizer) as all do, so that the replicas stay equal. False: no rank has data left (or, with
  /// UnevenInputs::stop, some rank has none). Without ReducerOptions::weighted the average still divides by
  /// the world size; with it, by all samples: begin_step(1) divides by the ranks that have data.
  bool begin_step(std::uint64_t samples);

  /// Collective; between steps. Gradients of `parameters` (and no others) take no part from now on: layers
  /// that are not trained yet or no longer. The same list on all ranks: Error(mismatch) otherwise. Views of
  /// frozen gradients become zero, and what is written to them meanwhile counts for nothing.
  void freeze(std::span<const std::size_t> parameters);

  /// Collective; between steps. The reducer has these parameters as well from now on, numbered on from those
  /// before: layers that join later. All ranks are compared as in construction, with the same errors, after
  /// which the reducer is as it was; then the new values become rank 0's. They get buckets of their own in
  /// front of the others: no gradient moves, and what a hook keeps of the others stays. Where every rank
  /// allows it (ReducerOptions::rebuild) the next step is observed and the buckets are laid out anew. A
  /// static graph is learned anew. The new values must outlive the reducer.
  void add_parameters(std::span<const Parameter> added);

  /// Whether any rank had a gradient for parameter i in the last step; true without find_unused and
  /// static_graph. A gradient that no rank had is zero; an optimizer with momentum or decay may want to leave
  /// its parameter alone. With a hook that has error feedback it may be what earlier steps could not send.
  bool used(std::size_t parameter) const;

  /// Collective; between steps. `tensors` (running statistics, of any type) become those of `root`, all in
  /// one broadcast. The same list on all ranks: otherwise Error(mismatch), and the communicator is revoked.
  void broadcast(std::span<const Parameter> tensors, int root = 0);

  /// Scales all gradients of trained parameters by max_norm / norm when their global L2 norm is above
  /// max_norm. Returns the norm before. Between wait() and the optimizer's step; no communication, since
  /// every rank has all gradients, and with equal bits everywhere. See clip_by_global_norm for shards.
  double clip_gradients(double max_norm);

  // ---- checkpoints

  /// For save_checkpoint, beside the parameters' slices: what the communication hook keeps between steps.
  /// Between steps; valid until the next one.
  std::vector<TensorSlice> slices() const;
  /// For load_checkpoint, of a checkpoint of any number of ranks: read_checkpoint_info() tells. With another
  /// number than this group's, what ranks had not sent yet is dealt out so that averages lose nothing of it;
  /// a single rank, which sends nothing, drops it.
  std::vector<TensorSlice> slices(const CheckpointInfo& saved);
  /// The slices were filled: goes on with step `steps` + 1, which hooks that begin late, or average now and
  /// then, count on. Between steps, on all ranks.
  void restored(std::uint64_t steps);
  /// Steps ended so far, those before a checkpoint included.
  std::uint64_t steps() const noexcept;

  // ---- the end

  /// As Communicator::abort(), whose handle may be gone: for a rank that cannot go on, and whose peers would
  /// wait for its gradients. From any thread.
  void abort(std::string_view reason);

  // ---- what happened

  /// Memory of what ReducerOptions::undo copies: gradients that travel, with views. 0 before the first step.
  std::size_t undo_bytes() const noexcept;
  const BucketPlan& plan() const noexcept;
  StepStatistics statistics() const;
  /// The last step in one sentence: "step 312: 41.8 ms; communication 12.3 ms, 91 % hidden; waited 1.1 ms for
  /// rank 5".
  std::string report() const;

 private:
  friend class ShardedOptimizer;  // Whose gradients pass through a reducer with other buckets.
  explicit Reducer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
