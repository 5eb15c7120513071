#include "collectives/device/hosts/column_relay.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "collectives/device/hosts/device_factor.hpp"
#include "collectives/device/patience.hpp"
#include "collectives/device/stream_words.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kSlotAlignment = 4096;
/// The number of a word after column `index`.
std::uint32_t after(const ColumnRelay::Passage& passage, std::uint64_t index) {
  return passage.first + static_cast<std::uint32_t>(index) + 1;
}

Column column_of(const StagedCall& call, const ColumnRelay::Passage& passage, std::uint64_t index) {
  const std::uint64_t first = index * passage.length;
  return {first, std::min(passage.length, call.longest - first)};
}

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

Result<std::unique_ptr<ColumnRelay>> ColumnRelay::make(Backend& backend, std::size_t bytes) {
  std::unique_ptr<ColumnRelay> relay(new ColumnRelay(backend));
  LOCKSTEP_RETURN_IF_ERROR(relay->set_up(bytes));
  return relay;
}

Status ColumnRelay::set_up(std::size_t bytes) {
  slot_bytes_ = bytes / (2 * kSlots) / kSlotAlignment * kSlotAlignment;
  auto memory = TransitMemory::pinned(backend_, 2 * kSlots * slot_bytes_);
  if (!memory.ok()) return memory.status();
  memory_ = std::move(*memory);
  auto words = TransitMemory::pinned(backend_, sizeof(Words));
  if (!words.ok()) return words.status();
  word_memory_ = std::move(*words);
  words_ = reinterpret_cast<Words*>(word_memory_->data());
  std::byte* next = memory_->data();
  for (Slot& one : slots_) {
    one.input = std::exchange(next, next + slot_bytes_);
    one.output = std::exchange(next, next + slot_bytes_);
  }
  return {};
}

Result<ColumnRelay::Passage> ColumnRelay::book(const StagedCall& call) {
  Passage passage;
  passage.first = booked_;
  if (call.longest == 0) return passage;
  passage.length = slot_bytes_ / (size_of(call.type) * call.width);
  if (passage.length == 0)
    return Status(ErrorCode::not_supported, "the pinned staging memory is too small for " +
                                                std::to_string(call.width) +
                                                " ranks: raise LOCKSTEP_DEVICE_STAGING");
  passage.columns = (call.longest + passage.length - 1) / passage.length;
  booked_ += static_cast<std::uint32_t>(passage.columns);
  return passage;
}

// ---- the stream's part ----

/// As many columns are ahead of the one that is waited for as there are slots beside its own. A slot is
/// filled again behind the copy that has emptied it.
Status ColumnRelay::enqueue(const StagedCall& call, const Passage& passage, DeviceStream stream) {
  if (call.device_scale != nullptr && passage.columns > 0)
    LOCKSTEP_RETURN_IF_ERROR(backend_.copy(&words_->factor, call.device_scale, size_of(call.type), stream));
  constexpr std::uint64_t kAhead = kSlots - 1;
  for (std::uint64_t next = 0; next < passage.columns + kAhead; ++next) {
    if (next < passage.columns) LOCKSTEP_RETURN_IF_ERROR(fill(call, passage, next, stream));
    if (next >= kAhead && next - kAhead < passage.columns)
      LOCKSTEP_RETURN_IF_ERROR(empty(call, passage, next - kAhead, stream));
  }
  return {};
}

Status ColumnRelay::fill(const StagedCall& call, const Passage& passage, std::uint64_t index,
                         DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(for_each_part(call.input, column_of(call, passage, index), size_of(call.type),
                                         slot(index).input,
                                         [&](std::byte* device, std::byte* pinned, std::size_t bytes) {
                                           return backend_.copy(pinned, device, bytes, stream);
                                         }));
  return backend_.write_value(&words_->filled, after(passage, index), stream);
}

Status ColumnRelay::empty(const StagedCall& call, const Passage& passage, std::uint64_t index,
                          DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(backend_.wait_value(&words_->arrived, after(passage, index), stream));
  return for_each_part(call.output, column_of(call, passage, index), size_of(call.type),
                       call.in_one_buffer() ? slot(index).input : slot(index).output,
                       [&](std::byte* device, std::byte* pinned, std::size_t bytes) {
                         return backend_.copy(device, pinned, bytes, stream);
                       });
}

// ---- the network's part ----

/// Why a stream that gave up a wait went on is known by the time it has filled a column: that is not sent.
Status ColumnRelay::carry(Engine& engine, StagedCall call, const Passage& passage, const RelayWatch& watch) {
  Progress progress;
  Patience patience;
  while (progress.received < passage.columns) {
    const bool is_filled =
        progress.sent < passage.columns && has_reached(words_->filled, after(passage, progress.sent));
    if (is_filled || patience.is_time_to_look()) {
      const Status found = watch.look(awaited(engine, progress));
      if (!found.ok()) return give_up(engine, found, watch);
    }
    auto moved = advance(engine, call, passage, progress, is_filled);
    if (!moved.ok()) return watch.in_all(fail(engine, moved.status()));
    if (*moved) {
      patience.restart();
    } else if (watch.end != 0 && engine.env().now() >= watch.end) {
      return give_up(engine, watch.late(awaited(engine, progress)), watch);
    } else if (progress.received < progress.sent) {
      wait_for_network(engine, progress, passage);
    } else {
      patience.pause();
    }
  }
  return {};
}

std::vector<int> ColumnRelay::awaited(Engine& engine, const Progress& progress) {
  if (progress.received == progress.sent) return {};
  return engine.awaited_by(*slot(progress.received).operation);
}

/// The stream fills another slot meanwhile, if there is one and it is needed.
void ColumnRelay::wait_for_network(Engine& engine, const Progress& progress, const Passage& passage) {
  const bool is_filling = progress.sent < passage.columns && progress.sent - progress.received < kSlots;
  is_filling ? void(sched_yield()) : void(engine.wait(*slot(progress.received).operation, kMoment));
}

/// One look at both stations, the last one first: what leaves a slot makes room for what comes.
Result<bool> ColumnRelay::advance(Engine& engine, StagedCall& call, const Passage& passage,
                                  Progress& progress, bool is_filled) {
  bool moved = false;
  Slot& oldest = slot(progress.received);
  if (progress.received < progress.sent && engine.test(*oldest.operation)) {
    const Status status = oldest.operation->status;
    engine.release(std::exchange(oldest.operation, nullptr));
    if (!status.ok()) return status;
    std::atomic_ref(words_->arrived).store(after(passage, progress.received++), std::memory_order_release);
    moved = true;
  }
  if (is_filled) {
    if (progress.sent == 0) LOCKSTEP_RETURN_IF_ERROR(take_factor(call));
    send(engine, call, column_of(call, passage, progress.sent), slot(progress.sent));
    ++progress.sent;
    moved = true;
  }
  return moved;
}

/// A factor that lies on the device came with the first column: it is applied on the host.
Status ColumnRelay::take_factor(StagedCall& call) const {
  if (call.device_scale == nullptr) return {};
  auto factor = host_factor(call.type, &words_->factor);
  if (!factor.ok()) return factor.status();
  call.scale = *factor;
  return {};
}

void ColumnRelay::send(Engine& engine, const StagedCall& call, const Column& column, Slot& slot) {
  void* const output = call.in_one_buffer() ? slot.input : slot.output;
  slot.call.emplace(call.column_call(engine, column, slot.input, output));
  slot.operation = engine.start(slot.call->build());
}

/// What is on the network ends at once when its group is revoked.
Status ColumnRelay::fail(Engine& engine, Status why) {
  engine.request_revoke(why);
  for (Slot& one : slots_) {
    if (one.operation == nullptr) continue;
    engine.wait(*one.operation);
    engine.release(std::exchange(one.operation, nullptr));
  }
  return why;
}

/// `why` names a rank by its number among all.
Status ColumnRelay::give_up(Engine& engine, const Status& why, const RelayWatch& watch) {
  static_cast<void>(fail(engine, watch.in_group(why)));
  return why;
}

void ColumnRelay::let_pass() {
  std::atomic_ref(words_->arrived).store(booked_ + kFarAhead, std::memory_order_release);
}

}  // namespace lockstep::internal
