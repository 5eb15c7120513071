// Plans of a DeviceReducer: the first, that of the observed order, with fewer parameters and with more.
#include <utility>

#include "ddp/bucket_plan.hpp"
#include "ddp/device/device_reducer_state.hpp"
#include "ddp/frozen_list.hpp"
#include "ddp/parameter_check.hpp"

namespace lockstep {

using internal::DeviceRoute;
using internal::DeviceScope;
using internal::MarkCounts;

std::unique_ptr<internal::DeviceCarrier> DeviceReducer::State::make_carrier() {
  const DeviceRoute route{backend, communicator, stream.get()};
  const auto quantised = [&](DataType type) {
    return internal::make_quantised_device_carrier(route, plan.travels, type, options.block);
  };
  switch (route.ranks() > 1 ? options.compression : DeviceCompression::none) {
    case DeviceCompression::none:
      break;
    case DeviceCompression::bf16:
      return internal::make_half_device_carrier(route, plan.travels, DataType::bf16);
    case DeviceCompression::f16:
      return internal::make_half_device_carrier(route, plan.travels, DataType::f16);
    case DeviceCompression::f8e4m3:
      return quantised(DataType::f8e4m3);
    case DeviceCompression::f8e5m2:
      return quantised(DataType::f8e5m2);
    case DeviceCompression::i8:
      return quantised(DataType::i8);
  }
  return internal::make_plain_device_carrier(route);
}

/// What steps have enqueued is past, and no peer is in this rank's memory.
void DeviceReducer::State::rest() {
  communicator.wait();
  backend.synchronize(stream.get()).throw_if_error();
  clock.collect();
}

/// The layout, what is frozen, or `parameters` changed, and nothing is on its way.
void DeviceReducer::State::use_plan(MarkCounts marks) {
  plan.derive(marks, rules.static_graph, step.number);
  streams.assign(plan.buckets().size(), {});
  kernels.emplace(backend, communicator.device(), plan.buckets().size(), parameters.size());
  if (undo) undo->use_plan(plan.travels);
  if (carrier) sent_before += carrier->bytes_on_wire();
  carrier.reset();
  carrier = make_carrier();
  clock.use_plan();
  clock.begin(stream.get());
}

/// Of the parameters from `first` on. Returns when all ranks have them.
void DeviceReducer::State::broadcast_values(std::size_t first) {
  for (std::size_t i = first; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const std::size_t count = internal::element_count(parameter).value();
    if (count == 0) continue;
    communicator.broadcast(parameter.value, parameter.value, count, parameter.type, 0, stream.get());
  }
  rest();
}

/// New parameters get buckets of their own, so that nothing moves.
void DeviceReducer::State::grow(std::span<const Parameter> added, const BucketPlan& more) {
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  const std::size_t first = parameters.size();
  buckets.add(backend, communicator, more, first + added.size(), stream.get());
  step.resize(first + added.size());
  closing.resize(first + added.size());
  plan.grow(more, first + added.size());
  parameters.insert(parameters.end(), added.begin(), added.end());
  broadcast_values(first);
  use_plan(MarkCounts::anew);
}

/// In wait(), after the step whose order was observed. Whether gradients have moved. The step has ended well:
/// a failure is one of the next.
bool DeviceReducer::State::rebuild() {
  bool moved = false;
  try {
    plan.change(peers, std::string(kOwner) + " cannot lay out its buckets anew", [&] {
      const BucketPlan next =
          internal::plan_in_order(parameters, rules, internal::agreed_order(plan.order, control));
      if (next == plan.layout) return;
      rest();
      move_gradients(next);
      moved = true;
      use_plan(MarkCounts::kept);
    });
  } catch (const Error&) {  // It is in `plan.broken`.
  }
  return moved;
}

/// The averages move along.
void DeviceReducer::State::move_gradients(const BucketPlan& next) {
  internal::DeviceBuckets moved;
  moved.add(backend, communicator, next, parameters.size(), stream.get());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto &from = buckets.place(i), &to = moved.place(i);
    if (to.bytes > 0) backend.copy(to.data, from.data, to.bytes, stream.get()).throw_if_error();
  }
  backend.synchronize(stream.get()).throw_if_error();
  buckets = std::move(moved);
  plan.layout = next;
}

void DeviceReducer::State::freeze(std::span<const std::size_t> list, Stream other) {
  step.require_ended("freeze");
  plan.require_whole();
  std::vector<bool> next = internal::agree_on_frozen(closing, list, parameters.size());
  if (next == plan.frozen) return;
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  plan.change(peers, std::string(kOwner) + "::freeze", [&] {
    rest();
    plan.frozen = std::move(next);
    for (std::size_t i = 0; i < plan.frozen.size(); ++i) {
      const auto& place = buckets.place(i);
      if (plan.frozen[i] && place.bytes > 0) backend.fill(place.data, 0, place.bytes, other).throw_if_error();
    }
    use_plan(MarkCounts::anew);
  });
}

void DeviceReducer::State::add_parameters(std::span<const Parameter> added) {
  step.require_ended("add_parameters");
  plan.require_whole();
  const bool may_move = internal::check_joining(control, parameters, added, rules, {kOwner});
  if (added.empty()) return;
  plan.change(peers, std::string(kOwner) + "::add_parameters", [&] {
    grow(added, internal::numbered_from(parameters.size(), plan_buckets(added, rules)));
    if (may_move) plan.order.observe(parameters.size());
  });
}

}  // namespace lockstep
