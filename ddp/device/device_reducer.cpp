// Making a DeviceReducer, and its public face.
#include "lockstep/ddp/device_reducer.hpp"

#include <optional>
#include <string>
#include <utility>

#include "ddp/device/device_reducer_state.hpp"
#include "ddp/device/host_options.hpp"
#include "ddp/marks.hpp"
#include "ddp/parameter_check.hpp"
#include "ddp/telling_peers.hpp"
#include "lib/net/fd.hpp"

namespace lockstep {

using internal::DeviceScope;

namespace {

/// Options of which one rank can make nothing are refused on all.
ReducerOptions rules_of(Communicator& control, const DeviceReducerOptions& options, const char* owner) {
  std::string problem;
  try {
    return internal::host_options(options);
  } catch (const Error& error) {
    problem = error.what();
  }
  internal::refuse_parameters(control, {owner, problem});
}

}  // namespace

DeviceReducer::State::State(Communicator own, DeviceCommunicator& c, const DeviceReducerOptions& o)
    : options(o),
      rules(internal::host_options(o)),
      backend(internal::device_backend_or_throw()),
      communicator(c.share()),
      control(std::move(own)),
      closing(control, 0),
      stream(backend, c.device()),
      clock(backend, c.device(), plan.travels, c.rank(),
            c.takes_turns() ? internal::DeviceClock::kSeldom : 1) {
  step.average = o.average;
  if (o.undo && !o.check_first) undo.emplace(backend, c.device());
}

DeviceReducer::State::~State() {
  if (step.marked || step.opened) {
    peers.abort(internal::reason_of_abandoned(step, parameters, kOwner, communicator.rank()));
  }
  stream.drain();
}

DeviceReducer::DeviceReducer(Communicator& control, DeviceCommunicator& communicator,
                             std::span<const Parameter> parameters, const DeviceReducerOptions& options) {
  const ReducerOptions rules = rules_of(control, options, State::kOwner);
  const bool may_move = internal::check_parameters(control, parameters, rules, {State::kOwner});
  std::optional<Communicator> own;
  State::Peers peers{communicator, control};  // Who has its part goes on, and waits in the other group.
  internal::telling_peers(peers, State::kOwner, [&] { own = control.split(0, control.rank()); });
  internal::telling_peers(communicator, State::kOwner, [&] {
    const DeviceScope scope(internal::device_backend_or_throw(), communicator.device());
    scope.status().throw_if_error();
    state_ = std::make_unique<State>(std::move(*own), communicator, options);
    state_->grow(parameters, plan_buckets(parameters, rules));
    if (may_move) state_->plan.order.observe(parameters.size());
  });
}

/// A forked child lacks the threads that would have to end, and the step is its parent's.
DeviceReducer::~DeviceReducer() {
  if (internal::in_forked_child()) static_cast<void>(state_.release());
}
DeviceReducer::DeviceReducer(DeviceReducer&&) noexcept = default;

void* DeviceReducer::gradient(std::size_t parameter) const {
  state_->check_index("gradient", parameter);
  return state_->buckets.place(parameter).data;
}

void DeviceReducer::mark_ready(std::size_t parameter, Stream stream) {
  state_->mark_ready(parameter, stream);
}
void DeviceReducer::mark_unused(std::size_t parameter, Stream stream) {
  state_->mark_unused(parameter, stream);
}
void DeviceReducer::wait(Stream stream) { state_->wait(stream); }
bool DeviceReducer::begin_step(std::uint64_t samples, Stream stream) {
  return state_->begin_step(samples, stream);
}
void DeviceReducer::freeze(std::span<const std::size_t> parameters, Stream stream) {
  state_->freeze(parameters, stream);
}
void DeviceReducer::add_parameters(std::span<const Parameter> added) { state_->add_parameters(added); }
bool DeviceReducer::used(std::size_t parameter) const {
  state_->check_index("used", parameter);
  return !state_->plan.frozen[parameter] && state_->closing.used(parameter);
}

void DeviceReducer::clip_gradients(double max_norm, Stream stream, double* norm) {
  if (!(max_norm > 0)) {
    throw Error(ErrorCode::invalid_argument,
                "clip_gradients: max_norm " + std::to_string(max_norm) + " is not above 0");
  }
  state_->step.require_ended("clip_gradients");
  state_->plan.require_whole();
  const DeviceScope scope(state_->backend, state_->communicator.device());
  scope.status().throw_if_error();
  state_->kernels->clip(state_->plan.travels, state_->buckets.starts_of(state_->plan.travels), max_norm, norm,
                        stream);
}

DeviceReducer::NoSync::NoSync(DeviceReducer& reducer) : state_(*reducer.state_) {
  if (state_.step.marked) state_.step.require_ended("no_sync");
  state_.plan.require_whole();
  ++state_.step.pauses;
}
DeviceReducer::NoSync::~NoSync() { state_.step.end_pause(); }

const BucketPlan& DeviceReducer::plan() const noexcept { return state_->plan.travels; }
std::uint64_t DeviceReducer::bytes_on_wire() const noexcept {
  return state_->sent_before + (state_->carrier ? state_->carrier->bytes_on_wire() : 0);
}
std::size_t DeviceReducer::undo_bytes() const noexcept { return state_->undo ? state_->undo->bytes() : 0; }
std::uint64_t DeviceReducer::steps() const noexcept { return state_->step.number - 1; }
StepStatistics DeviceReducer::statistics() const {
  const DeviceScope scope(state_->backend, state_->communicator.device());
  scope.status().throw_if_error();
  state_->clock.collect();
  return state_->clock.latest();
}
std::string DeviceReducer::report() const {
  return internal::report_of(statistics(), state_->communicator.rank());
}

}  // namespace lockstep
