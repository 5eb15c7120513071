// DeviceMemory: memory of one device, for what passes between hosts. As PinnedMemory, it is allocated before
// any stream waits.
#pragma once

#include <cstddef>
#include <memory>

#include "lib/device/backend.hpp"

namespace lockstep::internal {

class DeviceMemory {
 public:
  static Result<std::unique_ptr<DeviceMemory>> make(Backend& backend, int device, std::size_t bytes) {
    auto memory = backend.allocate(device, bytes);
    if (!memory.ok()) return memory.status();
    return std::unique_ptr<DeviceMemory>(new DeviceMemory(backend, *memory, bytes));
  }
  /// Nothing uses it any more.
  ~DeviceMemory() { static_cast<void>(backend_.free(data_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  DeviceMemory(Backend& backend, void* data, std::size_t bytes)
      : backend_(backend), data_(data), bytes_(bytes) {}
  Backend& backend_;
  void* const data_;
  const std::size_t bytes_;
};

}  // namespace lockstep::internal
