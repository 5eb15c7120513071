// Making a DeviceReducer, and its public face.
#include "lockstep/ddp/device_reducer.hpp"

#include <string>
#include <utility>

#include "ddp/device/device_reducer_state.hpp"
#include "ddp/parameter_check.hpp"
#include "lockstep/ddp/hooks.hpp"
#include "lockstep/ddp/reducer_options.hpp"

namespace lockstep {
namespace {

using internal::Backend;
using internal::DeviceRoute;
using internal::DeviceScope;

const char* short_name(DeviceCompression compression) {
  static constexpr const char* kNames[] = {"none", "bf16", "f16", "f8e4m3", "f8e5m2", "i8"};
  return kNames[static_cast<std::size_t>(compression)];
}

/// What a Reducer with the same plan and the same numbers on the wire would be given: for the comparison
/// among ranks.
ReducerOptions host_options(const DeviceReducerOptions& options) {
  ReducerOptions host;
  host.bucket_bytes = options.bucket_bytes;
  host.first_bucket_bytes = options.first_bucket_bytes;
  host.average = options.average;
  host.weighted = options.weighted;
  host.find_unused = options.find_unused;
  host.uneven = options.uneven;
  host.check_finite = options.check_finite;
  host.rebuild = false;
  if (options.compression < DeviceCompression::f8e4m3) {
    host.hook = hook_by_name(short_name(options.compression));
    return host;
  }
  const DataType types[] = {DataType::f8e4m3, DataType::f8e5m2, DataType::i8};
  const auto index =
      static_cast<std::size_t>(options.compression) - static_cast<std::size_t>(DeviceCompression::f8e4m3);
  host.hook = make_quantised_hook({types[index], options.block, false});
  return host;
}

std::unique_ptr<internal::DeviceCarrier> make_carrier(const DeviceRoute& route, const BucketPlan& plan,
                                                      const DeviceReducerOptions& options) {
  const auto quantised = [&](DataType type) {
    return internal::make_quantised_device_carrier(route, plan, type, options.block);
  };
  if (route.ranks() == 1) return internal::make_plain_device_carrier(route);
  switch (options.compression) {
    case DeviceCompression::none:
      return internal::make_plain_device_carrier(route);
    case DeviceCompression::bf16:
      return internal::make_half_device_carrier(route, plan, DataType::bf16);
    case DeviceCompression::f16:
      return internal::make_half_device_carrier(route, plan, DataType::f16);
    case DeviceCompression::f8e4m3:
      return quantised(DataType::f8e4m3);
    case DeviceCompression::f8e5m2:
      return quantised(DataType::f8e5m2);
    case DeviceCompression::i8:
      return quantised(DataType::i8);
  }
  throw Error(ErrorCode::invalid_argument, "DeviceReducerOptions::compression has no meaning");
}

Backend& backend_or_throw() {
  internal::Result<Backend*> backend = internal::device_backend();
  backend.status().throw_if_error();
  return **backend;
}

}  // namespace

DeviceReducer::State::State(Communicator own, DeviceCommunicator& c, std::span<const Parameter> p,
                            const DeviceReducerOptions& o)
    : options(o),
      backend(backend_or_throw()),
      communicator(c),
      parameters(p.begin(), p.end()),
      plan(plan_buckets(p, host_options(o))),
      places(internal::places_of(plan, p.size())),
      tracker(plan, p.size()),
      control(std::move(own)),
      closing(control, p.size()),
      stream(backend, c.device()),
      buckets(backend, c, internal::bucket_bytes(plan), stream.get()),
      gradients(internal::gradient_places(plan, buckets, p.size())),
      kernels(backend, c.device(), plan.buckets.size()),
      streams(plan.buckets.size()),
      carrier(make_carrier({backend, c, stream.get()}, plan, o)) {
  step.has_gradient.resize(p.size());
  step.average = o.average;
}

DeviceReducer::State::~State() {
  if (step.marked || started > 0) communicator.abort("a DeviceReducer was destroyed in the midst of a step");
  stream.drain();
}

void DeviceReducer::State::broadcast_values() {
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  for (const Parameter& parameter : parameters) {
    const std::size_t count = internal::element_count(parameter).value();
    if (count == 0) continue;
    communicator.broadcast(parameter.value, parameter.value, count, parameter.type, 0, stream.get());
  }
  communicator.wait();
  backend.synchronize(stream.get()).throw_if_error();
}

DeviceReducer::DeviceReducer(Communicator& control, DeviceCommunicator& communicator,
                             std::span<const Parameter> parameters, const DeviceReducerOptions& options) {
  static_cast<void>(internal::check_parameters(control, parameters, host_options(options)));
  auto own = control.split(0, control.rank());
  try {
    const DeviceScope scope(backend_or_throw(), communicator.device());
    scope.status().throw_if_error();
    state_ = std::make_unique<State>(std::move(*own), communicator, parameters, options);
  } catch (const Error& error) {  // No memory here, while the peers are on their way to the broadcast.
    communicator.abort("DeviceReducer on rank " + std::to_string(communicator.rank()) + ": " + error.what());
    throw;
  }
  state_->broadcast_values();
}

DeviceReducer::~DeviceReducer() = default;
DeviceReducer::DeviceReducer(DeviceReducer&&) noexcept = default;

void* DeviceReducer::gradient(std::size_t parameter) const {
  state_->check_index("gradient", parameter);
  return state_->gradients[parameter];
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
bool DeviceReducer::used(std::size_t parameter) const {
  state_->check_index("used", parameter);
  return state_->closing.used(parameter);
}

void DeviceReducer::clip_gradients(double max_norm, Stream stream, double* norm) {
  if (!(max_norm > 0)) {
    throw Error(ErrorCode::invalid_argument,
                "clip_gradients: max_norm " + std::to_string(max_norm) + " is not above 0");
  }
  state_->require_between_steps("clip_gradients");
  const DeviceScope scope(state_->backend, state_->communicator.device());
  scope.status().throw_if_error();
  state_->kernels.clip(state_->plan, state_->buckets.parts(), max_norm, norm, stream);
}

DeviceReducer::NoSync::NoSync(DeviceReducer& reducer) : state_(*reducer.state_) {
  if (state_.step.marked) state_.require_between_steps("no_sync");
  ++state_.pauses;
}
DeviceReducer::NoSync::~NoSync() { --state_.pauses; }

const BucketPlan& DeviceReducer::plan() const noexcept { return state_->plan; }
std::uint64_t DeviceReducer::bytes_on_wire() const noexcept { return state_->carrier->bytes_on_wire(); }

}  // namespace lockstep
