// HeldStreams: streams of a device that wait for a thread of the library, which may have more to enqueue
// before it lets them go, or for peers, whose loss such a thread has to find out. Whatever gives memory back
// may wait for all streams of its device, and keep that thread from the device meanwhile; so it is put off
// until none is held.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// Thread-safe.
class HeldStreams {
 public:
  /// Of this process; never destroyed.
  static HeldStreams& of(int device);

  /// From here on a stream is held; as often to be released.
  void hold();
  /// The last one does what was put off.
  void release();
  /// Does it now and gives how it went, or in the last release(), and then nobody hears of it. No stream
  /// becomes held meanwhile.
  Status when_none(std::function<Status()> work);

 private:
  std::mutex mutex_;
  int held_ = 0;
  std::vector<std::function<Status()>> put_off_;
};

}  // namespace lockstep::internal
