#include "collectives/device/hosts/pinned_pipeline.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "collectives/device/patience.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kSlotAlignment = 4096;

/// Copies what a column has of each block; the blocks lie packed in `pinned`.
template <typename Copy>
Status for_each_part(const DeviceBlocks& side, const Column& column, std::size_t element, std::byte* pinned,
                     const Copy& copy) {
  for (const DeviceBlocks::Block& block : side.blocks) {
    const std::size_t bytes = column.of(block) * element;
    if (bytes == 0) continue;
    LOCKSTEP_RETURN_IF_ERROR(copy(side.base + (block.first + column.first) * element, pinned, bytes));
    pinned += bytes;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PinnedPipeline>> PinnedPipeline::make(Backend& backend, DeviceStream stream,
                                                             std::size_t bytes) {
  std::unique_ptr<PinnedPipeline> pipeline(new PinnedPipeline(backend, stream));
  LOCKSTEP_RETURN_IF_ERROR(pipeline->set_up(bytes));
  return pipeline;
}

Status PinnedPipeline::set_up(std::size_t bytes) {
  slot_bytes_ = bytes / (2 * kSlots) / kSlotAlignment * kSlotAlignment;
  auto memory = TransitMemory::pinned(backend_, 2 * kSlots * slot_bytes_);
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  auto stream = backend_.create_stream(Backend::Priority::high);
  if (!stream.ok()) return stream.status();
  from_pinned_ = *stream;
  std::byte* next = memory_->data();
  for (Slot& one : slots_) {
    one.input = std::exchange(next, next + slot_bytes_);
    one.output = std::exchange(next, next + slot_bytes_);
    for (DeviceEvent* event : {&one.filled, &one.emptied}) {
      auto made = backend_.create_event();
      if (!made.ok()) return made.status();
      *event = *made;
    }
  }
  return {};
}

PinnedPipeline::~PinnedPipeline() {
  if (from_pinned_ != nullptr) {
    static_cast<void>(backend_.synchronize(from_pinned_));
    static_cast<void>(backend_.destroy_stream(from_pinned_));
  }
  for (const Slot& one : slots_) {
    for (const DeviceEvent event : {one.filled, one.emptied})
      if (event != nullptr) static_cast<void>(backend_.destroy_event(event));
  }
}

Status PinnedPipeline::run(Engine& engine, const StagedCall& call, Nanos end) {
  if (call.longest == 0) return {};
  Progress progress;
  progress.length = slot_bytes_ / (size_of(call.type) * call.width);
  if (progress.length == 0)
    return fail(engine, Status(ErrorCode::not_supported, "the pinned staging memory is too small for " +
                                                             std::to_string(call.width) +
                                                             " ranks: raise LOCKSTEP_DEVICE_STAGING"));
  progress.columns = (call.longest + progress.length - 1) / progress.length;
  while (progress.emptied < progress.columns) {
    auto moved = advance(engine, call, progress, end);
    if (!moved.ok()) return fail(engine, moved.status());
    if (*moved) continue;
    // What is on the network has the deadline of its own.
    if (progress.is_copying() && end != 0 && engine.env().now() >= end)
      return fail(engine, kept_from_device());
    wait_a_moment(engine, progress);
  }
  return {};
}

/// One look at every station, the last one first: what leaves a slot makes room for what comes.
Result<bool> PinnedPipeline::advance(Engine& engine, const StagedCall& call, Progress& progress, Nanos end) {
  const auto column = [&](std::uint64_t index) {
    const std::uint64_t first = index * progress.length;
    return Column{first, std::min(progress.length, call.longest - first)};
  };
  bool moved = false;
  if (progress.emptied < progress.received) {
    auto passed = backend_.query(slot(progress.emptied).emptied);
    if (!passed.ok()) return passed.status();
    progress.emptied += *passed ? 1 : 0;
    moved |= *passed;
  }
  if (progress.received < progress.sent) {
    Slot& one = slot(progress.received);
    auto here = arrived(engine, one);
    if (!here.ok()) return here.status();
    if (*here) LOCKSTEP_RETURN_IF_ERROR(empty(call, column(progress.received++), one));
    moved |= *here;
  }
  if (progress.sent < progress.filling) {
    Slot& one = slot(progress.sent);
    auto passed = backend_.query(one.filled);
    if (!passed.ok()) return passed.status();
    if (*passed) LOCKSTEP_RETURN_IF_ERROR(send(engine, call, column(progress.sent++), one, end));
    moved |= *passed;
  }
  if (progress.filling < std::min(progress.columns, progress.emptied + kSlots)) {
    const std::uint64_t next = progress.filling++;
    LOCKSTEP_RETURN_IF_ERROR(fill(call, column(next), slot(next)));
    moved = true;
  }
  return moved;
}

Status PinnedPipeline::fill(const StagedCall& call, const Column& column, Slot& slot) {
  LOCKSTEP_RETURN_IF_ERROR(for_each_part(call.input, column, size_of(call.type), slot.input,
                                         [&](std::byte* device, std::byte* pinned, std::size_t bytes) {
                                           return backend_.copy(pinned, device, bytes, to_pinned_);
                                         }));
  return backend_.record(slot.filled, to_pinned_);
}

Status PinnedPipeline::send(Engine& engine, const StagedCall& call, const Column& column, Slot& slot,
                            Nanos end) {
  Nanos left = 0;
  if (end != 0) left = std::max<Nanos>(1'000'000, end - engine.env().now());
  void* const output = call.in_one_buffer() ? slot.input : slot.output;
  slot.call.emplace(call.column_call(engine, column, slot.input, output, left));
  slot.operation = engine.start(slot.call->build());
  return {};
}

Result<bool> PinnedPipeline::arrived(Engine& engine, Slot& slot) {
  if (!engine.test(*slot.operation)) return false;
  Status status = slot.operation->status;
  engine.release(std::exchange(slot.operation, nullptr));
  if (!status.ok()) return status;
  return true;
}

Status PinnedPipeline::empty(const StagedCall& call, const Column& column, Slot& slot) {
  LOCKSTEP_RETURN_IF_ERROR(for_each_part(call.output, column, size_of(call.type),
                                         call.in_one_buffer() ? slot.input : slot.output,
                                         [&](std::byte* device, std::byte* pinned, std::size_t bytes) {
                                           return backend_.copy(device, pinned, bytes, from_pinned_);
                                         }));
  return backend_.record(slot.emptied, from_pinned_);
}

/// For a copy, which needs nobody, or else for the network.
void PinnedPipeline::wait_a_moment(Engine& engine, const Progress& progress) {
  if (progress.is_copying()) {
    sched_yield();
  } else {
    engine.wait(*slot(progress.received).operation, kMoment);
  }
}

/// What is on the network ends at once when its group is revoked.
Status PinnedPipeline::fail(Engine& engine, Status why) {
  engine.request_revoke(why);
  for (Slot& one : slots_) {
    if (one.operation == nullptr) continue;
    engine.wait(*one.operation);
    engine.release(std::exchange(one.operation, nullptr));
  }
  let_end(backend_, to_pinned_);
  let_end(backend_, from_pinned_);
  return why;
}

}  // namespace lockstep::internal
