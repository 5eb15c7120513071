// wait(): the marks are settled, the buckets end, all ranks judge the step.
#include <algorithm>
#include <cstring>
#include <thread>

#include "ddp/bucket_plan.hpp"
#include "ddp/reducer_state.hpp"
#include "ddp/replica_check.hpp"
#include "ddp/step_verdict.hpp"

namespace lockstep {

using internal::StepRecord;
using internal::Trouble;

void Reducer::State::wait() {
  if (pauses > 0) return;
  require_own_process("wait");
  if (!step.marked && !step.shadowing) begin_marks();
  clock.wait_entered();
  try {
    run_to_end();
  } catch (const Error& error) {
    static_cast<void>(carrier->finish());  // What is judged bad may be on its way still.
    if (undo) undo->restore();
    carrier->end_step(false);
    const std::string where = "gradients of " + step.name() + ": ";
    reset_step();
    clock.restart();
    if (dynamic_cast<const NonFiniteGradient*>(&error) != nullptr) throw;
    throw Error(error.code(), where + error.what(), error.culprit());
  }
}

void Reducer::State::run_to_end() {
  settle_marks();
  if (options.check_first) judge();
  start_all_buckets();
  if (!leaves_buckets()) {
    if (auto failed = carrier->finish()) throw *failed;
    note_wrong_result();
  }
  if (!options.check_first || options.hook) judge();
  if (auto failed = carrier->end_step(true)) throw *failed;
  end_step();
}

/// After this every mark of the step has had its effect, and what was not marked is known.
void Reducer::State::settle_marks() {
  if (step.shadowing) return;
  if (learning) return settle_learned();
  while (!tracker->settled()) std::this_thread::yield();  // A thread is at the end of its mark_ready().
  for (const std::size_t i : tracker->unmarked()) {
    if (!options.find_unused) {
      step.missing.push_back(i);
    } else if (step.has_gradient[i] != 0) {
      contribute(i);  // From a micro-batch before.
    }
  }
  if (!step.missing.empty()) step.trouble.set(Trouble::not_marked, step.missing.front());
}

void Reducer::State::settle_learned() {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!tracker->expects(i)) continue;
    if (tracker->learned(i)) step.has_gradient[i] = 1;
    if (step.has_gradient[i] != 0) contribute(i);
  }
  tracker->adopt();
  learning = false;
}

void Reducer::State::note_wrong_result() {
  const auto wrong = carrier->wrong_result();
  if (!wrong) return;
  step.trouble.set(Trouble::wrong_result, wrong->bucket());
  step.wrong_elements = wrong->elements();
}

/// The closing exchange. Throws, the same on every rank, unless the step is good on all of them.
void Reducer::State::judge() {
  StepRecord record;
  step.trouble.write_to(record);
  record.computed = clock.computed();
  if (record.trouble == Trouble::wrong_result) {
    record.values = step.wrong_elements;
  } else if (compares_replicas()) {
    record.values = internal::combined(internal::hash_values(parameters));
  }
  const bool finds_unused = options.find_unused || options.static_graph;
  closing.exchange(record, finds_unused ? &step.has_gradient : nullptr);
  internal::require_good_step(closing, step.missing, parameters, step.name());
  judge_replicas();
}

void Reducer::State::judge_replicas() {
  const auto records = closing.records();
  const bool equal = std::all_of(records.begin(), records.end(),
                                 [&](const StepRecord& r) { return r.values == records.front().values; });
  if (equal) return;
  const auto hashes = closing.gather_words(internal::hash_values(parameters));
  internal::compare_replicas(hashes, parameters).throw_if_error();
}

void Reducer::State::end_step() {
  if (leaves_buckets()) {
    leave_buckets();
  } else {
    for (const BucketPlan::Bucket& bucket : plan.buckets) copy_back(bucket);
    note_statistics(step.number);
    // A step that only counted marks saw no order.
    if (order.observing() && step.number != learns_in) rebuild();
  }
  ++step.number;
  reset_step();
}

void Reducer::State::note_statistics(std::uint64_t number) {
  std::vector<internal::Nanos> computed;
  for (const StepRecord& record : closing.records()) computed.push_back(record.computed);
  statistics = clock.end_step(communicator.rank(), computed);
  statistics.step = number;
  statistics.bytes = plan_bytes;
  statistics.buckets = static_cast<int>(plan.buckets.size());
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    statistics.timeline[b].bytes = internal::gradient_bytes(plan.buckets[b]);
  }
}

/// To where the caller keeps gradients.
void Reducer::State::copy_back(const BucketPlan::Bucket& bucket) {
  if (!memory || options.gradients_as_views) return;
  const std::size_t size = size_of(bucket.type);
  for (const GradientPart& part : bucket.parts) {
    if (part.count == 0) continue;
    auto* to = static_cast<std::byte*>(parameters[part.parameter].gradient) + part.first * size;
    std::memcpy(to, memory->start_of(bucket) + part.offset * size, part.count * size);
  }
}

void Reducer::State::reset_step() {
  started = 0;
  step.restart(options.average);
  if (undo) undo->forget();
  tracker->reset();
  if (learning) tracker->learn();
  order.restart();
}

/// The peers would wait in vain for the rest of the step; and the buckets are freed next, so nothing may run
/// on them any more.
void Reducer::State::abandon_step() {
  if (late_buckets > 0) static_cast<void>(carrier->finish());  // All ranks have started them.
  if (!step.marked && started == 0) return;
  StepRecord record;
  step.trouble.write_to(record);
  std::string reason = "rank " + std::to_string(communicator.rank()) + " destroyed its " + owner +
                       " in the midst of " + step.name();
  if (record.trouble != Trouble::none) reason += ", in which it " + internal::describe(record, parameters);
  communicator.abort(reason);
  carrier->finish();
}

}  // namespace lockstep
