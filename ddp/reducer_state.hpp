// The inside of a Reducer. A step goes through
//   reducer_mark.cpp   any thread: a gradient is complete, a bucket is full, buckets start in plan order
//   reducer_wait.cpp   wait(): the marks are settled, the buckets end, all ranks judge the step
//   reducer_late.cpp   buckets that wait() left on their way
// and between steps there are
//   reducer_plan.cpp   plans: the first, that of the observed order, with fewer parameters and with more
//   reducer_modes.cpp  uneven inputs, buffers
// Buckets start in plan order on every rank, each as soon as it and all before it are full. The order is what
// keeps the ranks matched: their threads may mark gradients in any order, but every rank calls the same
// collectives in the same order.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ddp/bucket_carrier.hpp"
#include "ddp/bucket_memory.hpp"
#include "ddp/bucket_plan.hpp"
#include "ddp/closing_exchange.hpp"
#include "ddp/hook_claim.hpp"
#include "ddp/hook_state.hpp"
#include "ddp/plan_in_use.hpp"
#include "ddp/step_clock.hpp"
#include "ddp/step_state.hpp"
#include "ddp/undo_copy.hpp"
#include "ddp/widening_hook.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep {

struct Reducer::State {
  // reducer.cpp
  /// Local. Whoever makes it gives it memory and carrier, then calls use_plan().
  State(Communicator& c, std::span<const Parameter> p, const ReducerOptions& o,
        const BucketPlan& plan_of_all);
  std::unique_ptr<internal::BucketCarrier> make_carrier();

  // reducer_mark.cpp
  void check_index(const char* call, std::size_t parameter) const;
  void mark_ready(std::size_t parameter);
  void mark_unused(std::size_t parameter);
  void begin_marks();
  bool claim(const char* call, std::size_t parameter, bool has_gradient);
  void inspect(std::size_t parameter);
  void put(const internal::PartPlace& place);
  void deliver(std::size_t parameter);
  void contribute(std::size_t parameter);
  bool checks_first() const { return options.check_first.value_or(false); }
  bool starts_in_wait() const { return checks_first() || plan.learning; }
  void bring_unmarked(std::size_t bucket);
  void start_full_buckets();
  void start_all_buckets();
  void keep_for_undo(std::size_t index, std::byte* data);
  void complete_bucket(const BucketPlan::Bucket& bucket, std::byte* data) const;
  void start_bucket(std::size_t index);

  // reducer_wait.cpp
  void wait();
  void drop_step();
  void run_to_end();
  void note_wrong_result();
  void judge();
  void end_step(const std::optional<Error>& failed);
  void note_statistics(std::uint64_t number);
  void copy_back(const BucketPlan::Bucket& bucket);
  void reset_step();
  void abandon_step();

  // reducer_late.cpp
  bool leaves_buckets() const;
  void leave_buckets();
  void require_nothing_late() const;
  void wait_gradients(std::size_t parameter);
  void wait_gradients();
  void await(std::size_t bucket);

  // reducer_plan.cpp
  void broadcast_values(const BucketPlan& of, std::size_t first);
  void use_plan(internal::MarkCounts marks);
  void rebuild();
  void lay_out_anew();
  void freeze(std::span<const std::size_t> list);
  void add_parameters(std::span<const Parameter> added);
  /// `more` are the buckets of the parameters that join, numbered on; `bring` brings their values.
  void grow(std::span<const Parameter> added, const BucketPlan& more, const std::function<void()>& bring);
  std::vector<TensorSlice> slices(const std::function<std::vector<TensorSlice>()>& of_hook);
  void restored(std::uint64_t steps);

  void require_usable();
  void ask_hook(const std::string& where, const std::function<void()>& ask);

  // reducer_modes.cpp
  void require_between_steps(const char* call) const { step.require_ended(call); }
  bool begin_step(std::uint64_t samples);
  void broadcast(std::span<const Parameter> tensors, int root);
  std::vector<GradientSpan> gradients() const;

  void* gradient(std::size_t i) const {
    return options.gradients_as_views ? memory->place(i).data : parameters[i].gradient;
  }
  std::size_t elements(std::size_t i) const { return counts[i]; }
  std::byte* bucket_data(std::size_t b) const {
    return memory ? memory->start_of(plan.buckets()[b]) : carrier->lend(b);
  }

  Communicator communicator;  // A handle of its own: the caller may move or drop the other one.
  const ReducerOptions options;
  std::vector<Parameter> parameters;
  std::vector<Parameter> attached_to;  // While others join: those that the hook still looks at.
  std::vector<std::size_t> counts;     // Elements of each.
  std::string owner = "Reducer";       // Whose inside this is, for messages.
  std::vector<std::string> kept;       // What the owner keeps of each parameter, in checkpoints.

  internal::PlanInUse plan;
  std::unique_ptr<internal::BucketMemory> memory;  // Null: the carrier lends buckets.
  std::optional<internal::UndoCopy> undo;          // Of views; none where it is not wanted.

  internal::StepClock clock;
  internal::ClosingExchange closing;
  internal::HookClaim hook_claim;
  internal::HookState hook_state;
  std::optional<Error> hook_failure;                 // Of a step that ended well all the same: the last one.
  bool attached = false;                             // The hook has state, or has begun to.
  std::shared_ptr<internal::WideningHook> widening;  // With half_in_f32, where there are halves.
  std::unique_ptr<internal::BucketCarrier> carrier;  // Its thread ends before anything else does.

  std::mutex mutex;         // Guards `started` while backward runs, and the begin and the end of marks.
  std::size_t started = 0;  // Buckets of this step given to the carrier, in plan order.
  bool has_moved = false;   // The step rebuilt the buckets, of which the caller is to be told.

  internal::StepState step;  // The one under way.

  std::vector<std::uint8_t> late;     // By bucket: of the step before, and not waited for.
  std::size_t late_buckets = 0;       // So many.
  std::optional<Error> late_failure;  // What one of them ended with: none is good from then on.

  StepStatistics statistics;
};

}  // namespace lockstep
