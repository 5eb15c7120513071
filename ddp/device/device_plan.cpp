// Plans of a DeviceReducer: the first, that of the observed order, with fewer parameters and with more.
#include <utility>

#include "ddp/bucket_plan.hpp"
#include "ddp/device/device_reducer_state.hpp"
#include "ddp/frozen_list.hpp"
#include "ddp/parameter_check.hpp"
#include "ddp/telling_peers.hpp"

namespace lockstep {

using internal::DeviceRoute;
using internal::DeviceScope;

std::unique_ptr<internal::DeviceCarrier> DeviceReducer::State::make_carrier() {
  const DeviceRoute route{backend, communicator, stream.get()};
  const auto quantised = [&](DataType type) {
    return internal::make_quantised_device_carrier(route, plan, type, options.block);
  };
  switch (route.ranks() > 1 ? options.compression : DeviceCompression::none) {
    case DeviceCompression::none:
      break;
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
  return internal::make_plain_device_carrier(route);
}

/// What steps have enqueued is past, and no peer is in this rank's memory.
void DeviceReducer::State::rest() {
  communicator.wait();
  backend.synchronize(stream.get()).throw_if_error();
  clock.collect();
}

/// `layout`, `frozen` or `parameters` changed, and nothing is on its way. Returns the tracker of the plan
/// before.
std::unique_ptr<internal::ReadyTracker> DeviceReducer::State::use_plan() {
  plan = internal::without_frozen(layout, frozen);
  plan_hash = internal::hash_of(plan);
  places = internal::places_of(plan, parameters.size());
  auto before = std::exchange(tracker, std::make_unique<internal::ReadyTracker>(plan, parameters.size()));
  learning = rules.static_graph;
  learns_in = learning ? step.number : 0;
  if (learning) tracker->learn();
  streams.assign(plan.buckets.size(), {});
  kernels.emplace(backend, communicator.device(), plan.buckets.size(), parameters.size());
  if (undo) undo->use_plan(plan);
  if (carrier) sent_before += carrier->bytes_on_wire();
  carrier.reset();
  carrier = make_carrier();
  clock.use_plan();
  clock.begin(stream.get());
  return before;
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

/// New parameters get buckets of their own, so that nothing moves; they come first, as backward reaches what
/// was registered last.
void DeviceReducer::State::grow(std::span<const Parameter> added, const BucketPlan& more) {
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  const std::size_t first = parameters.size();
  buckets.add(backend, communicator, more, first + added.size(), stream.get());
  parameters.insert(parameters.end(), added.begin(), added.end());
  frozen.resize(parameters.size());
  step.has_gradient.resize(parameters.size());
  closing.resize(parameters.size());
  layout.buckets.insert(layout.buckets.begin(), more.buckets.begin(), more.buckets.end());
  broadcast_values(first);
  use_plan();
}

/// It can fail midway, and on this rank alone: no step begins any more, here or at the peers.
void DeviceReducer::State::change_plan(const std::string& where, const std::function<void()>& change) {
  try {
    internal::telling_peers(peers, kOwner + where, change);
  } catch (const Error& error) {
    broken = error;
    throw;
  }
}

/// In wait(), after the step whose order was observed. Whether gradients have moved. The step has ended well:
/// a failure is one of the next.
bool DeviceReducer::State::rebuild() {
  bool moved = false;
  try {
    change_plan(" cannot lay out its buckets anew", [&] {
      const BucketPlan next =
          internal::plan_in_order(parameters, rules, internal::agreed_order(order, control));
      if (next == layout) return;
      rest();
      move_gradients(next);
      moved = true;
      const bool has_learned = !learning;
      const auto before = use_plan();
      if (!has_learned) return;
      tracker->adopt(*before);  // What a static graph has learned still holds.
      learning = false;
    });
  } catch (const Error&) {  // It is in `broken`.
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
  layout = next;
}

void DeviceReducer::State::freeze(std::span<const std::size_t> list, Stream other) {
  step.require_ended("freeze");
  std::vector<bool> next = internal::agree_on_frozen(closing, list, parameters.size());
  if (next == frozen) return;
  const DeviceScope scope(backend, communicator.device());
  scope.status().throw_if_error();
  change_plan("::freeze", [&] {
    rest();
    frozen = std::move(next);
    for (std::size_t i = 0; i < frozen.size(); ++i) {
      const auto& place = buckets.place(i);
      if (frozen[i] && place.bytes > 0) backend.fill(place.data, 0, place.bytes, other).throw_if_error();
    }
    use_plan();
  });
}

void DeviceReducer::State::add_parameters(std::span<const Parameter> added) {
  step.require_ended("add_parameters");
  std::vector<Parameter> all = parameters;
  all.insert(all.end(), added.begin(), added.end());
  const bool may_move = internal::check_parameters(control, all, rules);
  if (added.empty()) return;
  change_plan("::add_parameters",
              [&] { grow(added, internal::numbered_from(parameters.size(), plan_buckets(added, rules))); });
  if (may_move) order.observe(parameters.size());
}

}  // namespace lockstep
