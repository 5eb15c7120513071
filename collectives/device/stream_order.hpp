// StreamOrder: operations on different streams run in the order of their calls all the same.
#pragma once

#include <cstdint>

#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Where streams run what all ranks wait for, two operations must not wait crosswise. Not thread-safe.
class StreamOrder {
 public:
  explicit StreamOrder(Backend& backend) : backend_(backend) {}

  /// What `stream` is given next comes after the last operation.
  Status follow(DeviceStream stream);
  /// What `stream` was given so far is the last operation.
  Status note(DeviceStream stream);
  /// Whether the last operation is over.
  bool has_passed() const;
  /// With the device selected; once nothing follows any more.
  void destroy();

 private:
  Backend& backend_;
  DeviceEvent end_ = nullptr;  // Of the last operation; null: there was none.
  std::uint64_t stream_ = 0;   // Its stream_number().
};

}  // namespace lockstep::internal
