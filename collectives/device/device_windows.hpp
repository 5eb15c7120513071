// DeviceWindows: memory that all ranks registered together, with the promise that their calls name the same
// places of it (register_window). So each rank knows where the members' buffers of a call lie, without
// asking, and a stream can run the programs of registered memory.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/engine/call.hpp"
#include "transports/cuda_ipc/device_imports.hpp"

namespace lockstep::internal {

/// The members' buffers of one call, by member; empty where members do not touch each other's.
struct WindowUse {
  std::vector<std::byte*> input, output;
  std::uint64_t places = 0;  ///< Hash of what must be the same on all ranks.
};

/// Thread-safe.
class DeviceWindows {
 public:
  /// `members`: where the window begins on each, for this rank's device; `leases` keep that valid. Windows
  /// are added in the same order on all ranks.
  void add(std::byte* base, std::size_t bytes, std::vector<std::byte*> members,
           std::vector<DeviceLease> leases);
  /// All that begin at `base`. Gives their leases, which end a mapping with the last.
  std::vector<DeviceLease> remove(const void* base);
  std::vector<DeviceLease> remove_all();
  /// Of windows that overlap the one that was added last. Nothing where this rank's buffers lie in no window,
  /// or the collective has members whose buffers others cannot know of.
  std::optional<WindowUse> find(const Call& call) const;
  bool empty() const {
    const std::lock_guard lock(mutex_);
    return windows_.empty();
  }

 private:
  struct Window {
    std::uint64_t number = 0;
    std::size_t bytes = 0;
    std::vector<std::byte*> members;
    std::vector<DeviceLease> leases;
  };
  using Windows = std::multimap<const std::byte*, Window>;
  std::vector<DeviceLease> remove(Windows::iterator from, Windows::iterator to);
  bool locate(const void* pointer, std::size_t bytes, std::vector<std::byte*>& members,
              std::uint64_t& places) const;

  mutable std::mutex mutex_;
  Windows windows_;  ///< By address.
  std::uint64_t added_ = 0;
};

}  // namespace lockstep::internal
