// Which streams of the host backend are being captured, by whom, and what that keeps threads from: as CUDA
// does (cudaThreadExchangeStreamCaptureMode).
#pragma once

#include <map>
#include <mutex>
#include <thread>

#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Thread-safe.
class HostCaptures {
 public:
  void begin(DeviceStream stream, CaptureScope scope);
  /// An error where something that a capture does not allow was tried meanwhile.
  Status end(DeviceStream stream);
  /// Whether the calling thread may do `what`, which could wait for recorded work. Where not, the captures
  /// that keep it from it are broken as well.
  Status allow(const char* what);
  /// Of the calling thread; gives what was before.
  static bool heed(bool heeds);

 private:
  struct Capture {
    std::thread::id thread;
    CaptureScope scope;
    const char* broken_by = nullptr;
  };
  std::mutex mutex_;
  std::map<DeviceStream, Capture> captures_;
};

}  // namespace lockstep::internal
