// A step of a DeviceReducer: marks, buckets that start, and wait().
#include <algorithm>
#include <new>

#include "ddp/bucket_gaps.hpp"
#include "ddp/device/device_reducer_state.hpp"
#include "ddp/marks.hpp"
#include "ddp/open_step.hpp"
#include "ddp/step_verdict.hpp"
#include "ddp/telling_peers.hpp"

namespace lockstep {

using internal::DeviceScope;
using internal::GradientKernels;
using internal::Trouble;

void DeviceReducer::State::check_index(const char* call, std::size_t parameter) const {
  internal::require_index(call, parameter, parameters.size());
}

// ---- any thread, while backward is enqueued

void DeviceReducer::State::mark_ready(std::size_t i, Stream other) {
  check_index("mark_ready", i);
  if (plan.frozen[i]) return;
  const bool paused = step.note_if_paused(i, [&] {
    const std::lock_guard lock(mutex);
    note_streams(i, other);
  });
  if (paused) return;
  if (!claim("mark_ready", i, true, other)) return;
  plan.order.note(i);
  deliver(i);
}

void DeviceReducer::State::mark_unused(std::size_t i, Stream other) {
  check_index("mark_unused", i);
  internal::require_finds_unused(rules, i);
  if (plan.frozen[i] || step.pauses > 0) return;
  if (claim("mark_unused", i, false, other)) deliver(i);  // What micro-batches before have left, if any.
}

/// The first mark of a step, in `other`; several threads may think theirs is.
void DeviceReducer::State::begin_marks(Stream other) {
  plan.require_whole();
  step.require_marks_allowed(options.weighted);
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  clock.mark(other);
  step.marked.store(true, std::memory_order_relaxed);
}

/// True when this is the last mark of the parameter that is awaited.
bool DeviceReducer::State::claim(const char* call, std::size_t i, bool has_gradient, Stream other) {
  internal::require_own_process(call, kOwner);
  {
    const std::lock_guard lock(mutex);
    if (step.closed && !step.shadowing) internal::refuse_late_mark(call, i, parameters, communicator.rank());
    if (!step.marked) begin_marks(other);
    note_streams(i, other);
  }
  return internal::count_mark(step, plan.tracker, call, i, has_gradient, parameters, communicator.rank());
}

/// Under the mutex, or when no mark counts any more.
void DeviceReducer::State::note_stream(std::size_t bucket, Stream other) {
  std::vector<Stream>& seen = streams[bucket];
  if (std::find(seen.begin(), seen.end(), other) == seen.end()) seen.push_back(other);
}

void DeviceReducer::State::note_streams(std::size_t i, Stream other) {
  for (const internal::PartPlace& place : plan.places[i]) note_stream(place.bucket, other);
}

void DeviceReducer::State::deliver(std::size_t i) {
  for (const internal::PartPlace& place : plan.places[i]) {
    if (plan.tracker.complete(place.bucket)) start_full_buckets();
  }
}

// ---- buckets

/// Marks go on when this fails: wait() tells of it, as of all that is wrong with a step.
void DeviceReducer::State::start_full_buckets() {
  const std::lock_guard lock(mutex);
  if (step.closed || !step.marked || starts_in_wait()) return;  // Not marked: by a mark whose step is over.
  try {
    if (!failure) start_buckets(false);
  } catch (...) {
    failure = std::current_exception();
  }
}

/// Those that are left are not full: `other` is where their gradients were last used.
void DeviceReducer::State::start_all_buckets(Stream other) {
  const std::lock_guard lock(mutex);
  for (std::size_t b = started; b < plan.buckets().size(); ++b) note_stream(b, other);
  if (failure) std::rethrow_exception(failure);
  start_buckets(true);
}

/// In plan order: `all`, or those that are full.
void DeviceReducer::State::start_buckets(bool all) {
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  while (started < plan.buckets().size() && (all || plan.tracker.full(started))) start_bucket(started++);
}

void DeviceReducer::State::start_bucket(std::size_t index) {
  const BucketPlan::Bucket& bucket = plan.buckets()[index];
  std::byte* const data = buckets.start_of(bucket);
  for (const Stream other : streams[index]) stream.wait_for(other);
  clock.bucket_started(index, stream.get());
  if (undo && bucket.count > 0) undo->keep(index, data, bucket.count * size_of(bucket.type), stream.get());
  if (bucket.count > 0) complete_bucket(bucket, data);
  if (options.check_finite && !options.check_first) kernels->scrub(index, bucket, data, stream.get());
  carrier->start(index, bucket, data, step.average);
  clock.bucket_done(index, stream.get());
}

/// What backward has left in views that are frozen. Gaps of alignment alone are smaller, and zero.
void DeviceReducer::State::clear_frozen(const BucketPlan::Bucket& bucket, std::byte* data) {
  const std::size_t size = size_of(bucket.type);
  internal::for_each_gap(bucket.parts, bucket.count, [&](std::size_t first, std::size_t count) {
    if (count * size < BucketPlan::kAlignment) return;
    backend.fill(data + first * size, 0, count * size, stream.get()).throw_if_error();
  });
}

/// What this rank has no gradient for is zero; weights are applied.
void DeviceReducer::State::complete_bucket(const BucketPlan::Bucket& bucket, std::byte* data) {
  const std::size_t size = size_of(bucket.type);
  clear_frozen(bucket, data);
  for (const GradientPart& part : bucket.parts) {
    if (step.has_gradient[part.parameter] != 0 || part.count == 0) continue;
    backend.fill(data + part.offset * size, 0, part.count * size, stream.get()).throw_if_error();
  }
  if (step.factor != 1) kernels->scale(bucket, data, step.factor, stream.get());
}

// ---- the end

/// What the peers do not see fail: they would wait for the rest of the step.
void DeviceReducer::State::alone(const std::function<void()>& action) {
  internal::telling_peers(peers, std::string(kOwner) + "::wait", action);
}

void DeviceReducer::State::wait(Stream other) {
  if (step.pauses > 0) return;
  internal::require_own_process("wait", kOwner);
  if (!step.marked && !step.shadowing) begin_marks(other);
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  internal::end_marks(step, plan, mutex);
  try {
    run_to_end(other);
  } catch (const Error& error) {
    const std::string where = "gradients of " + step.name() + ": ";
    drop_step(other);
    if (dynamic_cast<const NonFiniteGradient*>(&error) != nullptr) throw;
    throw Error(error.code(), where + error.what(), error.culprit());
  } catch (const std::bad_alloc&) {  // Of the closing exchange; of this rank alone.
    const std::string what = "gradients of " + step.name() + ": no memory";
    peers.abort(what);
    reset_step();
    throw Error(ErrorCode::out_of_memory, what, communicator.rank());
  }
  const bool moved = plan.rebuilds_after(step.number) && rebuild();
  ++step.number;
  step.forget_gradients();
  reset_step();
  alone([&] { clock.begin(other); });
  if (moved && options.gradients_moved) options.gradients_moved();
}

/// As of a Reducer, but that the buckets are only enqueued when the ranks judge the step.
void DeviceReducer::State::run_to_end(Stream other) {
  alone([&] {
    clock.wait_entered(other);
    internal::settle_marks(step, plan, options.find_unused, [](std::size_t) {});
    if (options.check_first && options.check_finite) look_first(other);
  });
  if (options.check_first) judge(other);
  alone([&] {
    start_all_buckets(other);
    stream.let_wait(other);
    if (options.check_finite && !options.check_first) note_infinities();
  });
  if (!options.check_first) judge(other);
  alone([&] { clock.end(step.number, closing.computed(), other); });
}

/// Nothing has been started yet. Waits for the device.
void DeviceReducer::State::look_first(Stream other) {
  for (std::size_t b = 0; b < plan.buckets().size(); ++b) {
    note_stream(b, other);
    for (const Stream marked : streams[b]) stream.wait_for(marked);
    const BucketPlan::Bucket& bucket = plan.buckets()[b];
    std::byte* const data = buckets.start_of(bucket);
    if (bucket.count > 0) clear_frozen(bucket, data);
    kernels->look(b, bucket, data, step.has_gradient, stream.get());
  }
  note_infinities();
}

/// Waits for the device.
void DeviceReducer::State::note_infinities() {
  const std::vector<std::uint64_t> first = kernels->found(stream.get());
  for (std::size_t b = 0; b < first.size(); ++b) {
    if (first[b] == GradientKernels::kNone) continue;
    const auto& parts = plan.buckets()[b].parts;
    const auto after = std::find_if(parts.begin(), parts.end(),
                                    [&](const GradientPart& part) { return part.offset > first[b]; });
    if (after != parts.begin()) step.trouble.set(Trouble::not_finite, std::prev(after)->parameter);
  }
}

/// Waits for the device where replicas are compared.
void DeviceReducer::State::judge(Stream other) {
  internal::judge_step(closing, step, plan.hash, clock.computed(), parameters, rules, [&] {
    std::vector<std::uint64_t> hashes;
    alone([&] { hashes = kernels->hash_values(parameters, other); });
    return hashes;
  });
}

/// The step failed. Where the communicator is lost the device may be too, and that error tells more than one
/// of what would be enqueued here.
void DeviceReducer::State::take_back(Stream other) {
  if (communicator.state() != ErrorCode::ok) return;
  // What was used under no_sync counts when the step is repeated, whose marks do not tell these streams.
  for (const std::vector<Stream>& seen : streams) {
    for (const Stream marked : seen) stream.wait_for(marked);
  }
  if (undo) {
    undo->restore(started, stream.get());
    stream.let_wait(other);
  }
  clock.begin(other);
}

/// The error of the step counts. That gradients cannot be put back the next step tells, on all ranks.
void DeviceReducer::State::drop_step(Stream other) {
  try {
    alone([&] { take_back(other); });
  } catch (const Error&) {
  }
  reset_step();
}

void DeviceReducer::State::reset_step() {
  const std::lock_guard lock(mutex);  // A mark that has had its effect may still look for full buckets.
  for (std::vector<Stream>& seen : streams) seen.clear();
  started = 0;
  failure = nullptr;
  step.restart(options.average);
  plan.restart();
}

// ---- between steps

bool DeviceReducer::State::begin_step(std::uint64_t samples, Stream other) {
  step.require_ended("begin_step");
  plan.require_whole();
  if (!internal::open_step(step, closing, samples, communicator.rank(), rules)) return false;
  if (step.shadowing) internal::end_marks(step, plan, mutex);  // One may be late from the step before.
  if (step.shadowing && !options.check_first) {
    internal::telling_peers(peers, std::string(kOwner) + "::begin_step", [&] { start_all_buckets(other); });
  }
  return true;
}

}  // namespace lockstep
