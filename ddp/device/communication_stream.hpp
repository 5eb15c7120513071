// The stream on which a DeviceReducer communicates, and how other streams wait for it or it for them.
#pragma once

#include "lib/device/backend.hpp"

namespace lockstep::internal {

class CommunicationStream {
 public:
  /// Of high priority. Throws Error.
  CommunicationStream(Backend& backend, int device) : backend_(backend), device_(device) {
    const DeviceScope scope(backend_, device_);
    scope.status().throw_if_error();
    Result<DeviceStream> stream = backend_.create_stream(Backend::Priority::high);
    stream.status().throw_if_error();
    Result<DeviceEvent> event = backend_.create_event();
    if (!event.ok()) static_cast<void>(backend_.destroy_stream(*stream));
    event.status().throw_if_error();
    stream_ = *stream;
    event_ = *event;
  }
  ~CommunicationStream() {
    const DeviceScope scope(backend_, device_);
    static_cast<void>(backend_.destroy_event(event_));
    static_cast<void>(backend_.destroy_stream(stream_));
  }
  CommunicationStream(const CommunicationStream&) = delete;
  CommunicationStream& operator=(const CommunicationStream&) = delete;

  DeviceStream get() const { return stream_; }
  void drain() {
    const DeviceScope scope(backend_, device_);
    static_cast<void>(backend_.synchronize(stream_));
  }
  void wait_for(DeviceStream other) { order(other, stream_); }
  void let_wait(DeviceStream other) { order(stream_, other); }

 private:
  /// One event is enough: a wait binds to the record before it.
  void order(DeviceStream earlier, DeviceStream later) {
    backend_.record(event_, earlier).throw_if_error();
    backend_.wait_event(later, event_).throw_if_error();
  }

  Backend& backend_;
  const int device_;
  DeviceStream stream_ = nullptr;
  DeviceEvent event_ = nullptr;
};

}  // namespace lockstep::internal
