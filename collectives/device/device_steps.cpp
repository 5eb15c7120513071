#include "collectives/device/device_steps.hpp"

#include <algorithm>
#include <vector>

#include "collectives/device/patience.hpp"

namespace lockstep::internal {
namespace {

/// The own input is scaled where it is first read.
bool is_scaled(const Slice& slice, const Combine& combine) {
  return combine.scales && slice.space == Space::input && slice.member == kSelf;
}

Status enqueue_reduce(Backend& backend, DeviceStream stream, std::span<const Slice> operands,
                      std::span<const Slice> destinations, bool finish, const Buffers& buffers,
                      const Combine& combine, const std::uint32_t* permit) {
  std::vector<const void*> sources;
  std::vector<void*> targets;
  std::vector<ScaleFactor> factors;
  bool scaled = false;
  for (const Slice& slice : operands) {
    sources.push_back(buffers.read(slice));
    factors.push_back(is_scaled(slice, combine) ? ScaleFactor{combine.scale, combine.device_scale}
                                                : ScaleFactor{});
    scaled |= is_scaled(slice, combine);
  }
  for (const Slice& slice : destinations) targets.push_back(buffers.write(slice));
  const Reduction reduction = combine.reduction(destinations.front().count, finish);
  ReduceJob job;
  job.type = reduction.type;
  job.op = reduction.op == ReduceOp::premul_sum ? ReduceOp::sum : reduction.op;
  job.count = reduction.count;
  job.sources = sources;
  job.destinations = targets;
  job.divisor = reduction.divisor;
  if (scaled) job.factors = factors;
  job.permit = permit;
  return backend.reduce(job, stream);
}

}  // namespace

Status enqueue_step(Backend& backend, DeviceStream stream, const Program& program, const Step& step,
                    const Buffers& buffers, const Combine& combine, const std::uint32_t* permit) {
  if (step.kind == StepKind::reduce) {
    const std::span<const Slice> slices(program.slices);
    const auto destinations = slices.subspan(step.destinations, step.destination_count);
    if (destinations.front().count == 0) return {};
    return enqueue_reduce(backend, stream, slices.subspan(step.operands, step.operand_count), destinations,
                          step.finish, buffers, combine, permit);
  }
  if (step.dst.count == 0) return {};
  const bool divides = step.finish && combine.op == ReduceOp::avg;
  if (divides || is_scaled(step.src, combine) || permit != nullptr)
    return enqueue_reduce(backend, stream, {&step.src, 1}, {&step.dst, 1}, step.finish, buffers, combine,
                          permit);
  const std::byte* const from = buffers.read(step.src);
  std::byte* const to = buffers.write(step.dst);
  return from == to ? Status() : backend.copy(to, from, buffers.bytes(step.dst), stream);
}

bool writes_to_peers(const Program& program, const Step& step) {
  const auto is_theirs = [](const Slice& slice) {
    return slice.space == Space::output && slice.member != kSelf;
  };
  if (step.kind == StepKind::copy) return is_theirs(step.dst);
  if (step.kind != StepKind::reduce) return false;
  const std::span<const Slice> slices(program.slices);
  const auto destinations = slices.subspan(step.destinations, step.destination_count);
  return std::any_of(destinations.begin(), destinations.end(), is_theirs);
}

Status enqueue_step(Backend& backend, DeviceStream stream, const Program& program, const Step& step,
                    const Buffers& buffers, const Combine& combine, WriteGuard* guard) {
  const std::uint32_t* const unguarded = nullptr;
  if (guard == nullptr || !writes_to_peers(program, step))
    return enqueue_step(backend, stream, program, step, buffers, combine, unguarded);
  return guard->guarded(stream, [&](const std::uint32_t* permit) {
    return enqueue_step(backend, stream, program, step, buffers, combine, permit);
  });
}

Status DeviceSteps::run(const Program& program, const Step& step, const Buffers& buffers,
                        const Combine& combine) {
  const DeviceScope scope(backend_, device_);
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  return enqueue_step(backend_, stream_, program, step, buffers, combine, guard_.get());
}

Status DeviceSteps::close() {
  if (guard_ == nullptr) return {};
  const DeviceScope scope(backend_, device_);
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  return guard_->close(stream_);
}

Status DeviceSteps::complete() {
  const DeviceScope scope(backend_, device_);
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  return await_stream(backend_, stream_, end_);
}

}  // namespace lockstep::internal
