// How long a stream takes for a call.
#pragma once

#include <string_view>
#include <utility>

#include "bench/now.hpp"
#include "lockstep/device_runtime.hpp"

namespace lockstep::bench {

enum class Clock {
  events,  ///< Of the device: between two events around the call.
  /// From the call to its end on the stream. For processes that take turns on a GPU: an event that tells the
  /// time is work for the GPU, and so costs every rank a turn (about 145 us on an H100) that no program pays.
  host,
};
constexpr std::string_view name_of(Clock clock) { return clock == Clock::host ? "host" : "events"; }

/// A stream, and what times calls on it.
class Stopwatch {
 public:
  explicit Stopwatch(Clock clock = Clock::events)
      : clock_(clock),
        stream_(device::create_stream()),
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

  /// Microseconds that the stream, which is idle, takes for what `enqueue` puts into it.
  template <typename Enqueue>
  double time(Enqueue&& enqueue) const {
    const double began = now_us();
    if (clock_ == Clock::events) device::record(start_, stream_);
    std::forward<Enqueue>(enqueue)();
    if (clock_ == Clock::events) device::record(end_, stream_);
    device::synchronize(stream_);
    return clock_ == Clock::events ? device::elapsed_us(start_, end_) : now_us() - began;
  }

 private:
  const Clock clock_;
  Stream stream_;
  device::Event start_, end_;
};

}  // namespace lockstep::bench
