// DeviceTask: one operation between its call and its end.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/call_builder.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// One send or receive, checked.
struct DeviceMessage {
  bool is_send = false;
  void* buffer = nullptr;  ///< Read only for a send.
  std::uint64_t bytes = 0;
  int peer = 0;
  DeviceStream stream = nullptr;
};

/// What the caller's stream runs itself; the worker only watches it.
struct WatchedCall {
  std::uint64_t sequence = 0;  ///< Of the collectives on streams.
  CallFacts facts = {};        ///< Of one, with the places of its buffers where they lie in windows.
  DeviceEvent begin = nullptr, end = nullptr;
};

struct DeviceTask {
  std::optional<WatchedCall> watched;
  bool recorded = false;                ///< In a graph: there is nothing to run or to watch.
  std::optional<CallBuilder> call;      ///< A collective,
  std::vector<DeviceMessage> messages;  ///< or messages that do not wait for one another.
  void* copy_to = nullptr;              ///< Where a broadcast's root wants its input as well; null: nowhere.
  Nanos timeout = 0;                    ///< 0 = none.
  std::vector<DeviceEvent> ready;       ///< The caller's streams have come to the operation.
  std::uint32_t ticket = 0;             ///< What they wait for afterwards.
};

}  // namespace lockstep::internal
