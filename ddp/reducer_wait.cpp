// wait(): the marks are settled, the buckets end, all ranks judge the step.
#include <new>
#include <utility>

#include "ddp/marks.hpp"
#include "ddp/reducer_state.hpp"
#include "ddp/replica_check.hpp"
#include "ddp/step_verdict.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep {

using internal::Trouble;

void Reducer::State::wait() {
  if (step.pauses > 0) return;
  internal::require_own_process("wait", owner);
  if (!step.marked && !step.shadowing) begin_marks();
  clock.wait_entered();
  internal::end_marks(step, plan, mutex);
  try {
    run_to_end();
  } catch (const NonFiniteGradient&) {  // It names the step by itself.
    drop_step();
    throw;
  } catch (const Error& error) {
    const std::string what = "gradients of " + step.name() + ": " + error.what();
    drop_step();
    throw Error(error.code(), what, error.culprit());
  } catch (const std::bad_alloc&) {  // Of this rank alone: its peers wait for the rest of the step.
    const std::string what = "gradients of " + step.name() + ": no memory";
    communicator.abort(what);
    drop_step();
    throw Error(ErrorCode::out_of_memory, what, communicator.rank());
  }
  // The step has ended: what the caller's function throws is no failure of it.
  if (std::exchange(has_moved, false) && options.gradients_moved) options.gradients_moved();
}

/// Gradients are as they were, and the next step may begin.
void Reducer::State::drop_step() {
  static_cast<void>(carrier->finish());  // What is judged bad may be on its way still.
  if (undo) undo->restore();
  carrier->end_step(false);
  reset_step();
  clock.restart();
}

void Reducer::State::run_to_end() {
  internal::settle_marks(step, plan, options.find_unused, [this](std::size_t i) { contribute(i); });
  if (checks_first()) {
    for (std::size_t b = 0; b < plan.buckets().size(); ++b) bring_unmarked(b);
    judge();
  }
  start_all_buckets();
  if (!leaves_buckets() || carrier->failed()) {
    if (auto failed = carrier->finish()) throw *failed;
    note_wrong_result();
  }
  if (!checks_first() || options.hook) judge();
  end_step(carrier->end_step(true));
}

void Reducer::State::note_wrong_result() {
  const auto wrong = carrier->wrong_result();
  if (!wrong) return;
  step.trouble.set(Trouble::wrong_result, wrong->bucket());
  step.wrong_elements = wrong->elements();
}

void Reducer::State::judge() {
  internal::judge_step(closing, step, plan.hash, clock.computed(), parameters, options,
                       [this] { return internal::hash_values(parameters); });
}

/// The step is good on all ranks. That a hook has `failed` to end it is for the next one.
void Reducer::State::end_step(const std::optional<Error>& failed) {
  if (failed)
    hook_failure.emplace(failed->code(), owner + " cannot go on: " + failed->what(), failed->culprit());
  if (leaves_buckets()) {
    leave_buckets();
  } else {
    for (const BucketPlan::Bucket& bucket : plan.buckets()) copy_back(bucket);
    note_statistics(step.number);
    if (plan.rebuilds_after(step.number)) rebuild();  // With the others, though this rank cannot go on.
  }
  ++step.number;
  step.forget_gradients();
  reset_step();
}

void Reducer::State::note_statistics(std::uint64_t number) {
  statistics = clock.end_step(plan.travels, number, communicator.rank(), closing.computed());
}

/// To where the caller keeps gradients.
void Reducer::State::copy_back(const BucketPlan::Bucket& bucket) {
  if (!memory || options.gradients_as_views) return;
  const std::size_t size = size_of(bucket.type);
  for (const GradientPart& part : bucket.parts) {
    if (part.count == 0) continue;
    auto* to = static_cast<std::byte*>(parameters[part.parameter].gradient) + part.first * size;
    internal::copy_bytes(to, memory->start_of(bucket) + part.offset * size, part.count * size);
  }
}

void Reducer::State::reset_step() {
  const std::lock_guard lock(mutex);  // A mark that has had its effect may still look for full buckets.
  started = 0;
  step.restart(options.average);
  if (undo) undo->forget();
  plan.restart();
}

/// The peers would wait in vain for the rest of the step; and the buckets are freed next, so nothing may run
/// on them any more.
void Reducer::State::abandon_step() {
  if (late_buckets > 0) static_cast<void>(carrier->finish());  // All ranks have started them.
  if (hook_failure) communicator.abort(hook_failure->what());
  if (!step.marked && !step.opened) return;
  communicator.abort(internal::reason_of_abandoned(step, parameters, owner, communicator.rank()));
  carrier->finish();
}

}  // namespace lockstep
