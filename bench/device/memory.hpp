// Device memory, and the time between two points of a stream.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

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

/// A stream, and the events between which a call is timed.
class Stopwatch {
 public:
  Stopwatch()
      : stream_(device::create_stream()),
        start_(device::create_timed_event()),
        end_(device::create_timed_event()) {}
  ~Stopwatch() {
    device::destroy_event(start_);
    device::destroy_event(end_);
    device::destroy_stream(stream_);
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  Stream stream() const { return stream_; }

  /// Microseconds that the stream takes for what `enqueue` puts into it.
  template <typename Enqueue>
  double time(Enqueue&& enqueue) const {
    device::record(start_, stream_);
    std::forward<Enqueue>(enqueue)();
    device::record(end_, stream_);
    device::synchronize(stream_);
    return device::elapsed_us(start_, end_);
  }

 private:
  Stream stream_;
  device::Event start_, end_;
};

}  // namespace lockstep::bench
