#include "collectives/device/stream_runner.hpp"

#include "collectives/device/device_steps.hpp"
#include "collectives/device/stream_words.hpp"

namespace lockstep::internal {
Status StreamRunner::enqueue(const Call& call, DeviceStream stream) {
  if (areas_.world() == 1) return enqueue_alone(backend_, call, stream);
  Buffers buffers = buffers_of(call, areas_.rank);
  set_shape(shape_, call, areas_.rank, areas_.world());
  shape_.staging = areas_.staging_bytes / 2 / size_of(call.facts.type);
  std::optional<WindowUse> windows;
  auto algorithm = choose(call, shape_, windows, buffers);
  if (!algorithm.ok()) return algorithm.status();
  const auto program = programs_.get(**algorithm, shape_);
  const Combine combine = combine_of(call, areas_.world(), **algorithm);
  halves_.clear();
  for (std::byte* const area : areas_.staging)
    halves_.push_back(area + (calls_ & 1) * (areas_.staging_bytes / 2));
  buffers.member_staging = halves_.data();
  ++calls_;
  words_.clear();
  for (const Step& step : program->program.lanes.front().steps) {
    if (step.kind == StepKind::publish || step.kind == StepKind::await) {
      add_phase(step);
      continue;
    }
    LOCKSTEP_RETURN_IF_ERROR(enqueue_words(stream));
    LOCKSTEP_RETURN_IF_ERROR(
        enqueue_step(backend_, stream, program->program, step, buffers, combine, guard()));
  }
  LOCKSTEP_RETURN_IF_ERROR(enqueue_words(stream));
  base_ += program->program.phases;
  return {};
}

void StreamRunner::add_phase(const Step& step) {
  const std::uint32_t phase = base_ + step.phase;
  for (int member = 0; member < areas_.world(); ++member) {
    if (member == areas_.rank) continue;
    if (step.kind == StepKind::publish) {
      words_.push_back({WordOperation::Kind::write, word(member, areas_.rank), phase});
    } else if (step.peer == kSelf || step.peer == member) {
      words_.push_back({WordOperation::Kind::wait, word(areas_.rank, member), phase});
    }
  }
}

Status StreamRunner::enqueue_words(DeviceStream stream) {
  const Status status = words_.empty() ? Status() : backend_.operate(words_, stream);
  words_.clear();
  return status;
}

Status StreamRunner::let_pass(DeviceStream stream) {
  std::vector<WordOperation> writes;
  for (int member = 0; member < areas_.world(); ++member) {
    if (member == areas_.rank) continue;  // Alone there are no words.
    writes.push_back({WordOperation::Kind::write, word(areas_.rank, member), base_ + kFarAhead});
  }
  return writes.empty() ? Status() : backend_.operate(writes, stream);
}

}  // namespace lockstep::internal
