// A step of a DeviceReducer: marks, buckets that start, and wait().
#include <algorithm>
#include <thread>

#include "ddp/device/device_reducer_state.hpp"
#include "ddp/sample_weight.hpp"
#include "ddp/step_verdict.hpp"

namespace lockstep {

using internal::DeviceScope;
using internal::GradientKernels;
using internal::ReadyTracker;
using internal::StepRecord;
using internal::Trouble;

void DeviceReducer::State::check_index(const char* call, std::size_t parameter) const {
  if (parameter < parameters.size()) return;
  throw Error(ErrorCode::invalid_argument, std::string(call) + "(" + std::to_string(parameter) +
                                               "): the reducer has " + std::to_string(parameters.size()) +
                                               " parameters, numbered from 0");
}

// ---- any thread, while backward is enqueued

void DeviceReducer::State::mark_ready(std::size_t i, Stream other) {
  check_index("mark_ready", i);
  if (pauses > 0) {
    std::atomic_ref(step.has_gradient[i]).store(1, std::memory_order_relaxed);
    for (const internal::PartPlace& place : places[i]) note_stream(place.bucket, other);
    return;
  }
  claim("mark_ready", i);
  step.has_gradient[i] = 1;
  deliver(i, other);
}

void DeviceReducer::State::mark_unused(std::size_t i, Stream other) {
  check_index("mark_unused", i);
  if (!options.find_unused) {
    throw Error(ErrorCode::invalid_argument, "mark_unused(" + std::to_string(i) +
                                                 ") needs DeviceReducerOptions::find_unused, on all ranks");
  }
  if (pauses > 0) return;
  claim("mark_unused", i);
  deliver(i, other);  // What micro-batches before have left, if any.
}

void DeviceReducer::State::begin_marks() {
  step.require_marks_allowed(options.weighted);
  step.marked.store(true, std::memory_order_relaxed);
}

void DeviceReducer::State::claim(const char* call, std::size_t i) {
  if (!step.marked.load(std::memory_order_relaxed)) begin_marks();
  if (tracker.mark(i) == ReadyTracker::Mark::last) return;
  step.trouble.set(Trouble::marked_twice, i);
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + "(" + std::to_string(i) + "): \"" + parameters[i].name +
                  "\" was already marked in " + step.name() + "; " + internal::advice(Trouble::marked_twice),
              communicator.rank());
}

void DeviceReducer::State::note_stream(std::size_t bucket, Stream other) {
  const std::lock_guard lock(mutex);
  std::vector<Stream>& seen = streams[bucket];
  if (std::find(seen.begin(), seen.end(), other) == seen.end()) seen.push_back(other);
}

void DeviceReducer::State::deliver(std::size_t i, Stream other) {
  for (const internal::PartPlace& place : places[i]) {
    note_stream(place.bucket, other);
    if (tracker.complete(place.bucket)) start_full_buckets();
  }
}

// ---- buckets

void DeviceReducer::State::start_full_buckets() {
  const std::lock_guard lock(mutex);
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  while (started < plan.buckets.size() && tracker.full(started)) start_bucket(started++);
}

/// Those that are left are not full: `other` is where their gradients were last used.
void DeviceReducer::State::start_all_buckets(Stream other) {
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  for (std::size_t b = started; b < plan.buckets.size(); ++b) note_stream(b, other);
  const std::lock_guard lock(mutex);
  while (started < plan.buckets.size()) start_bucket(started++);
}

void DeviceReducer::State::start_bucket(std::size_t index) {
  const BucketPlan::Bucket& bucket = plan.buckets[index];
  std::byte* const data = buckets.part(index);
  for (const Stream other : streams[index]) stream.wait_for(other);
  if (data != nullptr) complete_bucket(bucket, data);
  if (data != nullptr && options.check_finite) kernels.scrub(index, bucket, data, stream.get());
  carrier->start(index, bucket, data, step.average);
}

/// What this rank has no gradient for is zero; weights are applied.
void DeviceReducer::State::complete_bucket(const BucketPlan::Bucket& bucket, std::byte* data) {
  const std::size_t size = size_of(bucket.type);
  for (const GradientPart& part : bucket.parts) {
    if (step.has_gradient[part.parameter] != 0 || part.count == 0) continue;
    backend.fill(data + part.offset * size, 0, part.count * size, stream.get()).throw_if_error();
  }
  if (step.factor != 1) kernels.scale(bucket, data, step.factor, stream.get());
}

// ---- the end

void DeviceReducer::State::wait(Stream other) {
  if (pauses > 0) return;
  if (!step.marked && !step.shadowing) begin_marks();
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  try {
    run_to_end(other);
  } catch (const NonFiniteGradient&) {
    reset_step();
    throw;
  } catch (const Error& error) {
    const std::string where = "gradients of " + step.name() + ": ";
    reset_step();
    throw Error(error.code(), where + error.what(), error.culprit());
  }
  ++step.number;
  reset_step();
}

/// As of a Reducer, but that the buckets are only enqueued when the ranks judge the step.
void DeviceReducer::State::run_to_end(Stream other) {
  settle_marks();
  start_all_buckets(other);
  stream.let_wait(other);
  if (options.check_finite) look_for_infinities();
  StepRecord record;
  step.trouble.write_to(record);
  closing.exchange(record, options.find_unused ? &step.has_gradient : nullptr);
  internal::require_good_step(closing, step.missing, parameters, step.name());
}

void DeviceReducer::State::settle_marks() {
  if (step.shadowing) return;
  while (!tracker.settled()) std::this_thread::yield();  // A thread is at the end of its mark_ready().
  if (!options.find_unused) step.missing = tracker.unmarked();
  if (!step.missing.empty()) step.trouble.set(Trouble::not_marked, step.missing.front());
}

/// Waits for the device.
void DeviceReducer::State::look_for_infinities() {
  const std::vector<std::uint64_t> first = kernels.found(stream.get());
  for (std::size_t b = 0; b < first.size(); ++b) {
    if (first[b] == GradientKernels::kNone) continue;
    const auto& parts = plan.buckets[b].parts;
    const auto after = std::find_if(parts.begin(), parts.end(),
                                    [&](const GradientPart& part) { return part.offset > first[b]; });
    if (after != parts.begin()) step.trouble.set(Trouble::not_finite, std::prev(after)->parameter);
  }
}

void DeviceReducer::State::reset_step() {
  for (std::vector<Stream>& seen : streams) seen.clear();
  started = 0;
  step.restart(options.average);
  tracker.reset();
}

// ---- between steps

void DeviceReducer::State::require_between_steps(const char* call) const {
  if (!step.marked && !step.opened && pauses == 0) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + " was called in the midst of " + step.name() + "; call wait() first");
}

bool DeviceReducer::State::begin_step(std::uint64_t samples, Stream other) {
  require_between_steps("begin_step");
  const auto all = closing.gather_words({&samples, 1});
  const auto without = static_cast<std::size_t>(std::count(all.begin(), all.end(), std::uint64_t{0}));
  if (without == all.size() || (without > 0 && options.uneven == UnevenInputs::stop)) return false;
  step.opened = true;
  if (options.weighted) {
    const auto weight = internal::weight_of(all, communicator.rank(), options.average);
    step.average = weight.average;
    step.factor = weight.factor;
  }
  if (samples == 0) {
    step.shadowing = true;
    start_all_buckets(other);
  }
  return true;
}

}  // namespace lockstep
