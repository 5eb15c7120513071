// Marks: any thread, while backward runs.
#include <cstring>

#include "ddp/gradient_math.hpp"
#include "ddp/reducer_state.hpp"

namespace lockstep {

using internal::BucketMemory;
using internal::ReadyTracker;
using internal::Trouble;

void Reducer::State::check_index(const char* call, std::size_t parameter) const {
  if (parameter < parameters.size()) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + "(" + std::to_string(parameter) + "): the reducer has " +
                  std::to_string(parameters.size()) +
                  " parameters, numbered from 0; pass an index of the list it was built with");
}

void Reducer::State::mark_ready(std::size_t i) {
  check_index("mark_ready", i);
  if (frozen[i]) return;
  if (pauses > 0) {
    std::atomic_ref(step.has_gradient[i]).store(1, std::memory_order_relaxed);
    return;
  }
  if (!claim("mark_ready", i)) return;
  step.has_gradient[i] = 1;
  contribute(i);
  order.note(i);
  if (tracker->complete(i)) start_full_buckets();
}

void Reducer::State::mark_unused(std::size_t i) {
  check_index("mark_unused", i);
  if (!options.find_unused) {
    throw Error(ErrorCode::invalid_argument,
                "mark_unused(" + std::to_string(i) + ") needs ReducerOptions::find_unused, on all ranks");
  }
  if (frozen[i] || pauses > 0) return;
  if (!claim("mark_unused", i)) return;
  if (step.has_gradient[i] != 0) contribute(i);  // From a micro-batch before.
  if (tracker->complete(i)) start_full_buckets();
}

/// True when this is the last mark of the parameter that is awaited.
bool Reducer::State::claim(const char* call, std::size_t i) {
  if (!step.marked.load(std::memory_order_relaxed)) begin_marks();
  switch (tracker->mark(i)) {
    case ReadyTracker::Mark::awaited:
      return false;
    case ReadyTracker::Mark::last:
      return true;
    case ReadyTracker::Mark::surplus:
      break;
  }
  const bool in_graph = tracker->expects(i);
  step.trouble.set(in_graph ? Trouble::marked_twice : Trouble::not_in_graph, i);
  internal::StepRecord record;
  step.trouble.write_to(record);
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + "(" + std::to_string(i) + "): \"" + parameters[i].name + "\" was " +
                  (in_graph ? "already marked in " : "not marked in the first step, but in ") + step_name() +
                  "; " + internal::advice(in_graph ? Trouble::marked_twice : Trouble::not_in_graph),
              communicator.rank());
}

/// The first mark of a step; several threads may think theirs is.
void Reducer::State::begin_marks() {
  if (step.shadowing) {
    throw Error(ErrorCode::invalid_argument,
                "mark_ready: begin_step(0) said that this rank has no data for " + step_name() +
                    "; compute nothing and call wait()");
  }
  if (options.weighted && !step.opened) {
    throw Error(ErrorCode::invalid_argument,
                "mark_ready: weighted gradients need begin_step(samples) before each step, on all ranks");
  }
  clock.mark();
  step.marked.store(true, std::memory_order_relaxed);
}

/// The gradient is complete: into the bucket with it, if it is not there already.
void Reducer::State::contribute(std::size_t i) {
  const BucketMemory::Place& place = memory->place(i);
  if (place.bytes == 0) return;  // Its pointers may be null.
  if (!options.gradients_as_views) std::memcpy(place.data, parameters[i].gradient, place.bytes);
  if (options.check_finite && !internal::all_finite(parameters[i].type, place.data, elements(i))) {
    step.trouble.set(Trouble::not_finite, i);
    if (!options.check_first) memory->clear(i);  // The peers' sums stay clean.
  }
}

void Reducer::State::start_full_buckets() {
  const std::lock_guard lock(mutex);
  if (starts_in_wait()) return;
  while (started < plan.buckets.size() && tracker->full(started)) start_bucket(started++);
}

void Reducer::State::start_all_buckets() {
  const std::lock_guard lock(mutex);
  while (started < plan.buckets.size()) start_bucket(started++);
}

void Reducer::State::start_bucket(std::size_t index) {
  const BucketPlan::Bucket& bucket = plan.buckets[index];
  std::byte* data = memory->start_of(bucket);
  const std::size_t size = size_of(bucket.type);
  for (const GradientPart& part : bucket.parts) {
    if (step.has_gradient[part.parameter] == 0) std::memset(data + part.offset * size, 0, part.count * size);
  }
  if (step.factor != 1) {
    const GradientSpan whole{bucket.type, data, bucket.count};
    scale_gradients({&whole, 1}, step.factor);
  }
  clock.bucket_started(index);
  carrier->start({index, step.number, bucket.type, data, bucket.count, step.average, bucket.parts});
}

}  // namespace lockstep
