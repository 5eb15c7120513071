#include "collectives/device/call_runner.hpp"

#include <algorithm>

#include "collectives/device/device_choice.hpp"
#include "collectives/device/device_steps.hpp"

namespace lockstep::internal {
namespace {

Combine combine_of(const Call& call, int world) {
  const double divisor = world;
  const bool scales = call.facts.op == ReduceOp::premul_sum;
  return {call.facts.type, call.facts.op, {}, divisor, false, scales, call.scale, call.device_scale};
}

}  // namespace

void set_shape(Shape& shape, const Call& call, int rank, int world) {
  shape.collective = call.facts.collective;
  shape.rank = rank;
  shape.world = world;
  shape.root = call.facts.root;
  shape.count = call.facts.count;
  shape.counts.assign(call.counts.begin(), call.counts.end());
  shape.recv_counts.assign(call.recv_counts.begin(), call.recv_counts.end());
}

Buffers buffers_of(const Call& call, int rank) {
  Buffers buffers;
  buffers.element = size_of(call.facts.type);
  buffers.self = rank;
  buffers.input = static_cast<const std::byte*>(call.input);
  buffers.output = static_cast<std::byte*>(call.output);
  return buffers;
}

Combine combine_of(const Call& call, int world, const Algorithm& algorithm) {
  Combine combine = combine_of(call, world);
  if (algorithm.stores_partial_sums) combine.keep_in_range(world);
  return combine;
}

Status enqueue_alone(Backend& backend, const Call& call, DeviceStream stream) {
  const std::uint64_t count = std::min(call.input_elements, call.output_elements);
  Step copy;
  copy.src = {Space::input, kSelf, 0, count};
  copy.dst = {Space::output, kSelf, 0, count};
  return enqueue_step(backend, stream, {}, copy, buffers_of(call, 0), combine_of(call, 1),
                      static_cast<WriteGuard*>(nullptr));
}

Result<const Algorithm*> CallRunner::choose(const Call& call, const Shape& shape,
                                            std::optional<WindowUse>& use, Buffers& buffers) const {
  auto selection = choose_for_device(call.facts, shape, ground());
  if (!selection.ok()) return selection.status();
  if (selection->registered != nullptr && windows_ != nullptr) use = windows_->find(call);
  if (use) {
    buffers.member_input = use->input.data();
    buffers.member_output = use->output.data();
    return selection->registered;
  }
  if (selection->staged != nullptr) return selection->staged;
  return refuse_buffers(*selection->registered, call.facts.op,
                        "buffers that lie at the same places of windows (register_window) in this mode; "
                        "leave the choice to the library");
}

}  // namespace lockstep::internal
