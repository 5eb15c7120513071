// StreamGate: where the caller's streams wait for operations that a thread of this process runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "lib/base/env.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// One word of pinned memory counts the operations that ended, in the order of their tickets; a stream waits
/// until it reaches the ticket that it was given. Not thread-safe, but release() may run beside the others.
class StreamGate {
 public:
  static Result<std::unique_ptr<StreamGate>> make(Backend& backend, int device);
  /// Every ticket must be released. Waits until the streams have passed the word, which then is freed.
  ~StreamGate();
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;

  /// Before the first ticket: whether `stream` goes on while another one is held. Streams that share a
  /// connection to the device wait for one another, and then nothing held would ever be released.
  Status probe(DeviceStream stream, Nanos limit = kLongProbe);
  /// What another stream writes arrives later than this where processes take turns on the device.
  static constexpr Nanos kShortProbe = 200'000'000;
  static constexpr Nanos kLongProbe = 2'000'000'000;
  /// Tickets are released in the order in which they are given.
  std::uint32_t next_ticket() { return ++given_; }
  /// What is enqueued to `stream` from here on runs after `ticket` is released. Its device is selected.
  Status hold(DeviceStream stream, std::uint32_t ticket);
  /// And all tickets before it.
  void release(std::uint32_t ticket);
  /// Once none is given any more.
  void release_all() { release(given_); }
  bool has_released_all() const;

 private:
  /// `held` waits until the probe is over, or the limit.
  Status probe_beside(DeviceStream held, DeviceStream stream, Nanos limit);
  Result<DeviceEvent> event_of_new_stream();
  StreamGate(Backend& backend, int device, std::uint32_t* word)
      : backend_(backend), device_(device), word_(word) {}

  Backend& backend_;
  const int device_;
  std::uint32_t* const word_;  ///< And a second one, for the probe.
  std::uint32_t given_ = 0;    ///< Tickets.
  /// By stream_number(): recorded after the stream's last wait.
  std::map<std::uint64_t, DeviceEvent> passed_;
};

}  // namespace lockstep::internal
