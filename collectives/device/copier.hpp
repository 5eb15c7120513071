// Copier: how the messenger's thread copies memory of its device.
#pragma once

#include "collectives/device/patience.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Used by one thread, which works on the device.
class Copier {
 public:
  virtual ~Copier() = default;
  /// From here on everything must be done at `end`.
  virtual void begin(Nanos end) = 0;
  /// Begins a copy between places that the device reaches. What is begun has no order until await().
  virtual Status copy(void* to, const void* from, std::size_t bytes) = 0;
  /// Until all that was begun is done; `timeout` at the end.
  virtual Status await() = 0;
  /// After a failure: waits a while for what moves.
  virtual void let_end() = 0;
};

/// By a stream of the library's own, idle otherwise.
class StreamCopier final : public Copier {
 public:
  StreamCopier(Backend& backend, DeviceStream stream) : backend_(backend), stream_(stream) {}
  void begin(Nanos end) override { end_ = end; }
  Status copy(void* to, const void* from, std::size_t bytes) override {
    return backend_.copy(to, from, bytes, stream_);
  }
  Status await() override { return await_stream(backend_, stream_, end_); }
  void let_end() override { internal::let_end(backend_, stream_); }

 private:
  Backend& backend_;
  const DeviceStream stream_;
  Nanos end_ = kForever;
};

}  // namespace lockstep::internal
