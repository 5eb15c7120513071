// DeviceTask: one operation between its call and its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/call_builder.hpp"
#include "collectives/device/hosts/hosts_plan.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// One send or receive, checked.
struct DeviceMessage {
  bool is_send = false;
  void* buffer = nullptr;  ///< Read only for a send.
  std::uint64_t bytes = 0;
  int peer = 0;
  DeviceStream stream = nullptr;
  DataType type = DataType::u8;  ///< As the caller counts, for the words of an error.
};

/// A collective, as its rank wrote it down for those of its host.
struct StreamCall {
  std::uint64_t sequence = 0;  ///< Of those that are written down.
  CallFacts facts = {};        ///< With the places of its buffers where they lie in windows.
  std::uint64_t history = 0;   ///< A hash of those before it.
};

/// What the caller's stream runs itself; the worker only watches it, while it is being enqueued as well: a
/// full stream may keep the caller until others have moved.
struct WatchedCall {
  enum class Stage : std::uint8_t { being_enqueued, enqueued, refused };
  /// Set last of all. What a refused call has enqueued ends at `end`.
  std::atomic<Stage> stage{Stage::being_enqueued};
  Status refusal = {};
  /// Where the stream is the worker sees by `mark`, or by `begin` and `end`, which takes calls to the driver.
  bool is_marked = false;
  std::uint32_t mark = 0;
  DeviceEvent begin = nullptr, end = nullptr;
  Nanos begun = 0;                    ///< When the worker saw that it was there; 0: not yet.
  bool is_carried = false;            ///< The worker has a part in it.
  std::optional<HostsBooking> hosts;  ///< Of a collective between hosts; else the courier is in the stream.
};

struct DeviceTask {
  std::unique_ptr<WatchedCall> watched;
  bool recorded = false;                ///< In a graph: there is nothing to run or to watch.
  std::optional<CallBuilder> call;      ///< A collective,
  StreamCall noted = {};                ///< where StreamCalls are,
  std::vector<DeviceMessage> messages;  ///< or messages that do not wait for one another.
  const void* copy_from = nullptr;      ///< Where the input of a broadcast's root lies; null: in its buffer.
  Nanos timeout = 0;                    ///< 0 = none.
  std::vector<DeviceEvent> ready;       ///< The caller's streams have come to the operation.
  std::uint32_t ticket = 0;             ///< What they wait for afterwards.
  Status refusal = {};                  ///< Of messages: why they are not run. A call has its own.
};

}  // namespace lockstep::internal
