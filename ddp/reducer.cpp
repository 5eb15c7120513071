// Reducer: buckets start in plan order, each as soon as it and all before it are full. The order is what
// keeps the ranks matched: their threads may mark gradients in any order, but every rank calls the same
// collectives in the same order.
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "ddp/bucket_carrier.hpp"
#include "ddp/bucket_memory.hpp"
#include "ddp/bucket_plan.hpp"
#include "ddp/parameter_check.hpp"
#include "ddp/ready_tracker.hpp"
#include "lib/base/env.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep {
namespace {

using internal::BucketMemory;
using internal::Nanos;

/// A message that names every parameter of a large model helps nobody.
constexpr std::size_t kMaxNamesInMessage = 8;

/// memcpy, but an empty parameter may have null pointers.
void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace

struct Reducer::State {
  State(Communicator& c, std::span<const Parameter> p, const ReducerOptions& o)
      : communicator(c),
        options(o),
        parameters(p.begin(), p.end()),
        plan(plan_buckets(parameters, o)),
        memory(plan, parameters.size()),
        tracker(plan),
        carrier(o.hook ? internal::make_hook_carrier(c, o.hook) : internal::make_direct_carrier(c)) {}

  void broadcast_values();
  void check_index(const char* call, std::size_t parameter) const;
  void start_full_buckets();
  void start_bucket(std::size_t index);
  bool all_started();
  void check_all_marked();
  void copy_out();
  void end_step(Nanos entered);
  void abandon_step();

  std::string quote(std::size_t parameter) const { return '"' + parameters[parameter].name + '"'; }
  std::string step_name() const { return "step " + std::to_string(step_number); }

  Communicator& communicator;
  const ReducerOptions options;
  const std::vector<Parameter> parameters;
  const BucketPlan plan;
  BucketMemory memory;
  internal::ReadyTracker tracker;
  const std::unique_ptr<internal::BucketCarrier> carrier;

  std::mutex mutex;         // Guards the next two while backward runs.
  std::size_t started = 0;  // Buckets of this step given to the carrier, in plan order.
  Nanos first_start = 0;

  std::uint64_t step_number = 1;  // Of the step under way; written in wait() only.
  StepStatistics statistics;
};

Reducer::Reducer(Communicator& communicator, std::span<const Parameter> parameters,
                 const ReducerOptions& options) {
  internal::check_parameters(communicator, parameters, options);
  try {
    state_ = std::make_unique<State>(communicator, parameters, options);
  } catch (const Error& error) {  // No memory here, while the peers are on their way to the broadcast.
    communicator.abort("Reducer on rank " + std::to_string(communicator.rank()) + ": " + error.what());
    throw;
  }
  state_->broadcast_values();
  state_->carrier->attach(state_->plan, state_->parameters);
}

Reducer::~Reducer() {
  if (state_) state_->abandon_step();
}

Reducer::Reducer(Reducer&&) noexcept = default;

/// The buckets have the layout of the parameters, so they carry the values once before they carry gradients.
void Reducer::State::broadcast_values() {
  constexpr int kRoot = 0;
  const bool root = communicator.rank() == kRoot;
  if (root) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      copy(memory.place(i).data, parameters[i].value, memory.place(i).bytes);
    }
  }
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    communicator.broadcast(memory.bucket(b), plan.buckets[b].count, plan.buckets[b].type, kRoot);
  }
  if (!root) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      copy(parameters[i].value, memory.place(i).data, memory.place(i).bytes);
    }
  }
  memory.clear();
}

void Reducer::State::check_index(const char* call, std::size_t parameter) const {
  if (parameter < parameters.size()) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + "(" + std::to_string(parameter) + "): the reducer has " +
                  std::to_string(parameters.size()) +
                  " parameters, numbered from 0; pass an index of the list it was built with");
}

void* Reducer::gradient(std::size_t parameter) const {
  state_->check_index("gradient", parameter);
  return state_->options.gradients_as_views ? state_->memory.place(parameter).data
                                            : state_->parameters[parameter].gradient;
}

void Reducer::mark_ready(std::size_t parameter) {
  State& s = *state_;
  s.check_index("mark_ready", parameter);
  if (!s.tracker.claim(parameter)) {
    throw Error(ErrorCode::invalid_argument,
                "mark_ready(" + std::to_string(parameter) + "): " + s.quote(parameter) +
                    " was already marked in " + s.step_name() +
                    "; mark a gradient once, when it is complete, and wait() between steps");
  }
  if (!s.options.gradients_as_views) {
    const BucketMemory::Place& place = s.memory.place(parameter);
    copy(place.data, s.parameters[parameter].gradient, place.bytes);
  }
  if (s.tracker.complete(parameter)) s.start_full_buckets();
}

void Reducer::State::start_full_buckets() {
  const std::lock_guard lock(mutex);
  while (started < plan.buckets.size() && tracker.full(started)) start_bucket(started++);
}

void Reducer::State::start_bucket(std::size_t index) {
  if (index == 0) first_start = internal::real_env().now();
  const BucketPlan::Bucket& bucket = plan.buckets[index];
  carrier->start(
      {index, step_number, bucket.type, memory.bucket(index), bucket.count, options.average, bucket.parts});
}

void Reducer::wait() {
  State& s = *state_;
  const Nanos entered = internal::real_env().now();
  s.check_all_marked();
  s.end_step(entered);
}

bool Reducer::State::all_started() {
  const std::lock_guard lock(mutex);
  return started == plan.buckets.size();
}

void Reducer::State::check_all_marked() {
  const std::vector<std::size_t> missing = tracker.unclaimed();
  if (missing.empty() && all_started()) return;
  std::string message = "Reducer::wait: ";
  if (missing.empty()) {
    message += "another thread is still inside mark_ready in " + step_name() + "; join it first";
  } else {
    message += std::to_string(missing.size()) + " of " + std::to_string(parameters.size()) +
               " gradients were not marked ready in " + step_name() + ": ";
    for (std::size_t k = 0; k < missing.size() && k < kMaxNamesInMessage; ++k) {
      message += (k > 0 ? ", " : "") + quote(missing[k]) + " (" + std::to_string(missing[k]) + ")";
    }
    if (missing.size() > kMaxNamesInMessage) message += ", ...";
    message += "; mark each one, with a gradient of zero where backward did not reach it, and wait again";
  }
  throw Error(ErrorCode::invalid_argument, message);
}

void Reducer::State::copy_out() {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const BucketMemory::Place& place = memory.place(i);
    copy(parameters[i].gradient, place.data, place.bytes);
  }
}

void Reducer::State::end_step(Nanos entered) {
  const std::optional<Error> failed = carrier->finish();
  started = 0;
  if (!failed) {
    if (!options.gradients_as_views) copy_out();
    const Nanos now = internal::real_env().now();
    statistics = {step_number++, std::chrono::nanoseconds(now - first_start),
                  std::chrono::nanoseconds(now - entered), memory.gradient_bytes(),
                  static_cast<int>(plan.buckets.size())};
  }
  tracker.reset();
  if (failed)
    throw Error(failed->code(), "gradients of " + step_name() + ": " + failed->what(), failed->culprit());
}

/// The peers would wait in vain for the rest of the step; and the buckets are freed next, so nothing may run
/// on them any more.
void Reducer::State::abandon_step() {
  if (started == 0) return;
  communicator.abort("rank " + std::to_string(communicator.rank()) +
                     " destroyed its Reducer in the midst of " + step_name());
  carrier->finish();
}

const BucketPlan& Reducer::plan() const noexcept { return state_->plan; }

StepStatistics Reducer::statistics() const { return state_->statistics; }

}  // namespace lockstep
