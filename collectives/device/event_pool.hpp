// EventPool: the events of a device that tell where streams are, used again and again.
#pragma once

#include <mutex>
#include <vector>

#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Thread-safe.
class EventPool {
 public:
  explicit EventPool(Backend& backend) : backend_(backend) {}

  Result<DeviceEvent> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        const DeviceEvent event = free_.back();
        free_.pop_back();
        return event;
      }
    }
    return backend_.create_event();
  }
  void give_back(std::vector<DeviceEvent>& events) {
    const std::lock_guard lock(mutex_);
    free_.insert(free_.end(), events.begin(), events.end());
    events.clear();
  }
  /// Once none is in use any more, with the device selected.
  void destroy_all() {
    for (const DeviceEvent event : free_) static_cast<void>(backend_.destroy_event(event));
    free_.clear();
  }

 private:
  Backend& backend_;
  std::mutex mutex_;
  std::vector<DeviceEvent> free_;
};

}  // namespace lockstep::internal
