#include "collectives/device/stream_runner.hpp"

#include <algorithm>

#include "collectives/device/device_steps.hpp"

namespace lockstep::internal {
namespace {

/// Ahead of every phase that a call in flight awaits, and not behind any by the words' arithmetic.
constexpr std::uint32_t kFarAhead = std::uint32_t{1} << 30;

void set_shape(Shape& shape, const Call& call, const StreamAreas& areas) {
  shape.collective = call.facts.collective;
  shape.rank = areas.rank;
  shape.world = areas.world();
  shape.root = call.facts.root;
  shape.count = call.facts.count;
  shape.staging = areas.staging_bytes / 2 / size_of(call.facts.type);
  shape.counts.assign(call.counts.begin(), call.counts.end());
  shape.recv_counts.assign(call.recv_counts.begin(), call.recv_counts.end());
}

}  // namespace

Status StreamRunner::enqueue(const Call& call, DeviceStream stream) {
  Buffers buffers;
  buffers.element = size_of(call.facts.type);
  buffers.self = areas_.rank;
  buffers.input = static_cast<const std::byte*>(call.input);
  buffers.output = static_cast<std::byte*>(call.output);
  const Combine combine{
      call.facts.type, call.facts.op,    {}, static_cast<std::uint32_t>(areas_.world()), false,
      call.scale,      call.device_scale};
  if (areas_.world() == 1) return enqueue_alone(call, buffers, combine, stream);
  set_shape(shape_, call, areas_);
  auto selection = choose_for_device(call.facts, shape_);
  if (!selection.ok()) return selection.status();
  if (selection->staged == nullptr) {
    return Status(ErrorCode::not_supported, "algorithm " + std::string(selection->registered->name) +
                                                " writes to the memory of other ranks, which needs mode "
                                                "host_sync; leave the choice to the library");
  }
  const auto program = programs_.get(*selection->staged, shape_);
  halves_.clear();
  for (std::byte* const area : areas_.staging)
    halves_.push_back(area + (calls_ & 1) * (areas_.staging_bytes / 2));
  buffers.member_staging = halves_.data();
  ++calls_;
  for (const Step& step : program->program.lanes.front().steps) {
    const bool phase = step.kind == StepKind::publish || step.kind == StepKind::await;
    LOCKSTEP_RETURN_IF_ERROR(phase
                                 ? enqueue_phase(step, stream)
                                 : enqueue_step(backend_, stream, program->program, step, buffers, combine));
  }
  base_ += program->program.phases;
  return {};
}

Status StreamRunner::enqueue_alone(const Call& call, const Buffers& buffers, const Combine& combine,
                                   DeviceStream stream) {
  const std::uint64_t count = std::min(call.input_elements, call.output_elements);
  Step copy;
  copy.src = {Space::input, kSelf, 0, count};
  copy.dst = {Space::output, kSelf, 0, count};
  return enqueue_step(backend_, stream, {}, copy, buffers, combine);
}

Status StreamRunner::enqueue_phase(const Step& step, DeviceStream stream) {
  words_.clear();
  const std::uint32_t phase = base_ + step.phase;
  for (int member = 0; member < areas_.world(); ++member) {
    if (member == areas_.rank) continue;
    if (step.kind == StepKind::publish) {
      words_.push_back({WordOperation::Kind::write, word(member, areas_.rank), phase});
    } else if (step.peer == kSelf || step.peer == member) {
      words_.push_back({WordOperation::Kind::wait, word(areas_.rank, member), phase});
    }
  }
  return words_.empty() ? Status() : backend_.operate(words_, stream);
}

Status StreamRunner::let_pass(DeviceStream stream) {
  std::vector<WordOperation> writes;
  for (int member = 0; member < areas_.world(); ++member)
    writes.push_back({WordOperation::Kind::write, word(areas_.rank, member), base_ + kFarAhead});
  return backend_.operate(writes, stream);
}

}  // namespace lockstep::internal
