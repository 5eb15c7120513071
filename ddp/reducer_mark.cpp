// Marks: any thread, while backward runs.
#include <cstring>

#include "ddp/bucket_gaps.hpp"
#include "ddp/gradient_math.hpp"
#include "ddp/marks.hpp"
#include "ddp/reducer_state.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep {

using internal::PartPlace;
using internal::Trouble;

void Reducer::State::check_index(const char* call, std::size_t parameter) const {
  internal::require_index(call, parameter, parameters.size());
}

void Reducer::State::mark_ready(std::size_t i) {
  check_index("mark_ready", i);
  if (plan.frozen[i]) return;
  if (step.note_if_paused(i, [] {})) return;
  if (!claim("mark_ready", i, true)) return;
  plan.order.note(i);
  deliver(i);
}

void Reducer::State::mark_unused(std::size_t i) {
  check_index("mark_unused", i);
  internal::require_finds_unused(options, i);
  if (plan.frozen[i] || step.pauses > 0) return;
  if (!claim("mark_unused", i, false)) return;
  deliver(i);  // What micro-batches before have left, if any.
}

/// True when this is the last mark of the parameter that is awaited.
bool Reducer::State::claim(const char* call, std::size_t i, bool has_gradient) {
  internal::require_own_process(call, owner);
  if (!step.marked.load(std::memory_order_relaxed)) {
    const std::lock_guard lock(mutex);
    if (step.closed && !step.shadowing) internal::refuse_late_mark(call, i, parameters, communicator.rank());
    begin_marks();
  }
  return internal::count_mark(step, plan.tracker, call, i, has_gradient, parameters, communicator.rank());
}

/// The first mark of a step; several threads may think theirs is.
void Reducer::State::begin_marks() {
  require_usable();
  step.require_marks_allowed(options.weighted);
  require_nothing_late();
  clock.mark();
  step.marked.store(true, std::memory_order_relaxed);
}

/// A gradient that is not finite takes no part: the peers' sums stay clean.
void Reducer::State::inspect(std::size_t i) {
  if (!options.check_finite || step.has_gradient[i] == 0 || elements(i) == 0) return;
  if (internal::all_finite(parameters[i].type, gradient(i), elements(i))) return;
  step.trouble.set(Trouble::not_finite, i);
  step.has_gradient[i] = 0;
}

/// Into the bucket with a part, if it is not there already.
void Reducer::State::put(const PartPlace& place) {
  const GradientPart& part = place.part;
  if (options.gradients_as_views || step.has_gradient[part.parameter] == 0 || part.count == 0) return;
  std::byte* bucket = bucket_data(place.bucket);
  if (bucket == nullptr) return;
  const Parameter& parameter = parameters[part.parameter];
  const std::size_t size = size_of(parameter.type);
  const auto* from = static_cast<const std::byte*>(parameter.gradient);
  internal::copy_bytes(bucket + part.offset * size, from + part.first * size, part.count * size);
}

/// The gradient is complete. Part by part: the first one of a large gradient travels while the next is
/// copied. wait() does not await what fails here, without memory to lend a bucket, say.
void Reducer::State::deliver(std::size_t i) try {
  inspect(i);
  for (const PartPlace& place : plan.places[i]) {
    put(place);
    if (plan.tracker.complete(place.bucket)) start_full_buckets();
  }
} catch (...) {
  step.cut_short = true;
  throw;
}

/// The same for a gradient that wait() found: buckets start later.
void Reducer::State::contribute(std::size_t i) {
  inspect(i);
  for (const PartPlace& place : plan.places[i]) put(place);
}

/// Gradients of which a static graph expects no mark, and which were used under no_sync: no mark brings them.
void Reducer::State::bring_unmarked(std::size_t index) {
  if (!options.static_graph) return;
  for (const GradientPart& part : plan.buckets()[index].parts) {
    if (step.has_gradient[part.parameter] == 0 || plan.tracker.expects(part.parameter)) continue;
    if (part.first == 0) inspect(part.parameter);
    put({index, part});
  }
}

void Reducer::State::start_full_buckets() {
  const std::lock_guard lock(mutex);
  if (step.closed || !step.marked || starts_in_wait()) return;  // Not marked: by a mark whose step is over.
  while (started < plan.buckets().size() && plan.tracker.full(started)) start_bucket(started++);
}

void Reducer::State::start_all_buckets() {
  const std::lock_guard lock(mutex);
  while (started < plan.buckets().size()) start_bucket(started++);
}

/// Of what completing the bucket and carrying it will change. Gradients that the caller keeps do not change.
void Reducer::State::keep_for_undo(std::size_t index, std::byte* data) {
  if (!undo) return;
  const BucketPlan::Bucket& bucket = plan.buckets()[index];
  const std::size_t size = size_of(bucket.type);
  if (step.factor != 1 || carrier->overwrites()) return undo->keep(index, data, 0, bucket.count * size);
  for (const GradientPart& part : bucket.parts) {
    if (step.has_gradient[part.parameter] != 0) continue;
    undo->keep(index, data, part.offset * size, part.count * size);
  }
}

/// What this rank has no gradient for is zero, and so is what backward has left in a view that is frozen;
/// weights are applied.
void Reducer::State::complete_bucket(const BucketPlan::Bucket& bucket, std::byte* data) const {
  const std::size_t size = size_of(bucket.type);
  internal::clear_gaps(bucket.parts, data, bucket.count, size);
  for (const GradientPart& part : bucket.parts) {
    if (step.has_gradient[part.parameter] == 0) std::memset(data + part.offset * size, 0, part.count * size);
  }
  if (step.factor == 1 || (widening && internal::widens(bucket.type))) return;
  const GradientSpan whole{bucket.type, data, bucket.count};
  scale_gradients({&whole, 1}, step.factor);
}

void Reducer::State::start_bucket(std::size_t index) {
  const BucketPlan::Bucket& bucket = plan.buckets()[index];
  bring_unmarked(index);
  std::byte* data = bucket_data(index);
  if (data != nullptr) {
    keep_for_undo(index, data);
    complete_bucket(bucket, data);
  }
  clock.bucket_started(index);
  carrier->start({index, step.number, bucket.type, data, bucket.count, step.average, bucket.parts});
}

}  // namespace lockstep
