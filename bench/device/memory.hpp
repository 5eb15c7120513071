// Device memory.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/device.hpp"
#include "lockstep/device_runtime.hpp"

namespace lockstep::bench {

/// Of the selected device; never empty.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes)
      : bytes_(bytes + 1), data_(allocate_device(bytes_, device::selected())) {}
  ~DeviceBuffer() { free_device(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_;
};

// Of memory that is not pinned: only where the stream has nothing in it that waits for peers.
inline void upload(void* to, std::span<const std::byte> from, Stream stream) {
  device::synchronize(stream);
  if (!from.empty()) device::copy(to, from.data(), from.size(), stream);
  device::synchronize(stream);
}

inline void download(std::span<std::byte> to, const void* from, Stream stream) {
  device::synchronize(stream);
  if (!to.empty()) device::copy(to.data(), from, to.size(), stream);
  device::synchronize(stream);
}

}  // namespace lockstep::bench
