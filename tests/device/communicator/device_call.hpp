// A CollectiveCase through the public face of DeviceCommunicator.
#pragma once

#include "lockstep/device.hpp"
#include "tests/engine/call_buffers.hpp"

namespace lockstep::internal {

/// Device memory for the buffers of calls, with a copy of it on the host, in pinned memory, where they are
/// filled and checked.
class DeviceArena {
 public:
  DeviceArena(std::size_t bytes, int device);
  ~DeviceArena();
  DeviceArena(const DeviceArena&) = delete;
  DeviceArena& operator=(const DeviceArena&) = delete;

  std::byte* device() const { return device_; }
  std::size_t size() const { return bytes_; }
  std::span<std::byte> host() { return {host_, bytes_}; }
  /// Where on the device an address of the host's copy lies; null stays null.
  void* on_device(const void* host) const;
  /// Enqueued: the first `bytes` of the host's copy to the device, and back.
  void upload(std::size_t bytes, Stream stream);
  void download(std::size_t bytes, Stream stream);

 private:
  const std::size_t bytes_;
  std::byte *host_, *device_;
};

/// Calls `what` on buffers that lie in the arena's host copy, on the same places of the device.
void start_on_device(DeviceCommunicator& communicator, const CollectiveCase& what, const CallBuffers& buffers,
                     const DeviceArena& arena, Stream stream, DeviceCallOptions options = {});

/// A stream of the backend, destroyed with the object.
class TestStream {
 public:
  explicit TestStream(int device);
  ~TestStream();
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator Stream() const { return stream_; }
  void synchronize() const;

 private:
  Stream stream_;
};

}  // namespace lockstep::internal
