// ColumnRelay: runs a collective of host memory on buffers of a device, a column at a time, between a stream
// and a thread that never meet in the driver.
//
// The stream copies a column to pinned memory, says so in a word there, and goes on with the next one; it
// waits for another word before it copies a column back. The thread sees the first word, runs the column on
// the network, and writes the second. It makes no call to the driver, so that a call of the program that
// blocks there, whatever it waits for, keeps nothing from its end.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/device/hosts/staged_call.hpp"
#include "collectives/device/hosts/transit_memory.hpp"
#include "collectives/engine/engine.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Of a thread that waits for a stream or the network. `awaited`: whom of the network's group that waits for;
/// nobody where the stream is waited for.
struct RelayWatch {
  Nanos end = 0;  ///< When the call must be done; 0 = never.
  /// From time to time, and before a column is sent: why to go on no longer.
  std::function<Status(const std::vector<int>& awaited)> look;
  std::function<Status(const std::vector<int>& awaited)> late;  ///< Why it is not done by the end.
  /// What the network's group reports, with the number among all of the rank that it names.
  std::function<Status(Status)> in_all = {};
  /// What all know, as the network's group is told.
  std::function<Status(const Status&)> in_group = {};
};

class ColumnRelay {
 public:
  /// `backend` outlives it, and it the streams. `bytes` of pinned memory are cut into slots; equal on all
  /// ranks.
  static Result<std::unique_ptr<ColumnRelay>> make(Backend& backend, std::size_t bytes);

  /// The columns of one call, by their numbers among those of all calls, which wrap.
  struct Passage {
    std::uint32_t first = 0;
    std::uint64_t columns = 0, length = 0;  ///< Elements of a column.
  };
  // In one order, that of what the streams run. One thread at a time.
  Result<Passage> book(const StagedCall& call);
  /// The stream's part, after what was booked before has run or stands before it. Its device is selected.
  Status enqueue(const StagedCall& call, const Passage& passage, DeviceStream stream);

  // Of one thread, in the same order.
  /// The network's part. Blocks until all columns are back, or failed: then the group of `engine` is revoked,
  /// and the stream waits on. All ranks of `engine` make the same call.
  Status carry(Engine& engine, StagedCall call, const Passage& passage, const RelayWatch& watch);
  /// Ends every wait of streams for this relay, now and later. From any thread.
  void let_pass();

 private:
  /// One on its way there, one on the network, one on its way back.
  static constexpr std::size_t kSlots = 3;
  struct Slot {
    std::byte* input = nullptr;
    std::byte* output = nullptr;
    std::optional<CallBuilder> call;
    Operation* operation = nullptr;
  };
  /// In lines of their own.
  struct Words {
    alignas(128) std::uint32_t filled;   ///< The number after the last column that a stream has filled,
    alignas(128) std::uint32_t arrived;  ///< and that the network has brought back.
    alignas(128) std::uint64_t factor;   ///< Of premul_sum, where that lies on the device.
  };

  /// How many of a call's columns are past a station.
  struct Progress {
    std::uint64_t sent = 0, received = 0;
  };

  explicit ColumnRelay(Backend& backend) : backend_(backend) {}
  Status set_up(std::size_t bytes);
  Status fill(const StagedCall& call, const Passage& passage, std::uint64_t index, DeviceStream stream);
  Status empty(const StagedCall& call, const Passage& passage, std::uint64_t index, DeviceStream stream);
  Result<bool> advance(Engine& engine, StagedCall& call, const Passage& passage, Progress& progress,
                       bool is_filled);
  std::vector<int> awaited(Engine& engine, const Progress& progress);
  void wait_for_network(Engine& engine, const Progress& progress, const Passage& passage);
  Status take_factor(StagedCall& call) const;
  void send(Engine& engine, const StagedCall& call, const Column& column, Slot& slot);
  Status fail(Engine& engine, Status why);
  Status give_up(Engine& engine, const Status& why, const RelayWatch& watch);
  Slot& slot(std::uint64_t index) { return slots_[index % kSlots]; }

  Backend& backend_;
  std::unique_ptr<TransitMemory> memory_, word_memory_;
  Words* words_ = nullptr;
  std::size_t slot_bytes_ = 0;
  std::array<Slot, kSlots> slots_;
  std::atomic<std::uint32_t> booked_{0};
};

}  // namespace lockstep::internal
