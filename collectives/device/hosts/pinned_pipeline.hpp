// PinnedPipeline: runs a collective of host memory on buffers of a device, a column at a time. While one
// column is on the network, the next is copied from the device and the one before back to it.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "collectives/device/hosts/staged_call.hpp"
#include "collectives/device/hosts/transit_memory.hpp"
#include "collectives/engine/engine.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Used by one thread.
class PinnedPipeline {
 public:
  /// All outlive it; `stream` is of `device` and idle between calls of run(). `bytes` of pinned memory are
  /// cut into slots; equal on all ranks.
  static Result<std::unique_ptr<PinnedPipeline>> make(Backend& backend, DeviceStream stream,
                                                      std::size_t bytes);
  ~PinnedPipeline();
  PinnedPipeline(const PinnedPipeline&) = delete;
  PinnedPipeline& operator=(const PinnedPipeline&) = delete;

  /// Blocks until the call is done on this rank, or failed: then the engine's group is revoked. All ranks of
  /// `engine` make the same call. `end`: when it must be done; 0 = never. The device is selected.
  Status run(Engine& engine, const StagedCall& call, Nanos end);
  /// That of copies back to the device.
  DeviceStream stream_back() const { return from_pinned_; }

 private:
  /// One on its way there, one on the network, one on its way back.
  static constexpr std::size_t kSlots = 3;
  struct Slot {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    DeviceEvent filled = nullptr, emptied = nullptr;
    std::optional<CallBuilder> call;
    Operation* operation = nullptr;
  };
  /// How far the columns of a call have come: each number is of the columns that are past a station.
  struct Progress {
    std::uint64_t columns = 0, length = 0;  ///< Of the call; elements of a column.
    std::uint64_t filling = 0, sent = 0, received = 0, emptied = 0;
    bool is_copying() const { return emptied < received || sent < filling; }
  };

  PinnedPipeline(Backend& backend, DeviceStream stream) : backend_(backend), to_pinned_(stream) {}
  Status set_up(std::size_t bytes);
  Result<bool> advance(Engine& engine, const StagedCall& call, Progress& progress, Nanos end);
  Status fill(const StagedCall& call, const Column& column, Slot& slot);
  Status send(Engine& engine, const StagedCall& call, const Column& column, Slot& slot, Nanos end);
  Result<bool> arrived(Engine& engine, Slot& slot);
  Status empty(const StagedCall& call, const Column& column, Slot& slot);
  void wait_a_moment(Engine& engine, const Progress& progress);
  Status fail(Engine& engine, Status why);
  Slot& slot(std::uint64_t column) { return slots_[column % kSlots]; }

  Backend& backend_;
  const DeviceStream to_pinned_;
  DeviceStream from_pinned_ = nullptr;  ///< Another, so that copies in both directions go side by side.
  std::unique_ptr<TransitMemory> memory_;
  std::size_t slot_bytes_ = 0;
  std::array<Slot, kSlots> slots_;
};

}  // namespace lockstep::internal
