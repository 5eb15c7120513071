// Ranks on devices as forked processes: on the host backend, or on that which LOCKSTEP_DEVICE_BACKEND names.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>

#include "collectives/device/device_core.hpp"
#include "tests/device/communicator/device_call.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/recording_backend.hpp"

namespace lockstep::testing {

/// Ranks take the devices in turn; the host backend has enough for all.
inline int device_of(int rank) {
  internal::Backend& backend = **internal::device_backend();
  return rank % backend.device_count().value();
}

/// What `run_on_devices` gives each rank.
struct DeviceRank {
  DeviceRank(int rank, int world, const MeetingPlace& place, const DeviceOptions& options)
      : host(place.join(rank, world, "auto")),
        recorder(**internal::device_backend()),
        communicator(make(host, recorder, device_of(rank), options)),
        stream(device_of(rank)) {}

  static DeviceCommunicator make(Communicator& host, internal::Backend& backend, int device,
                                 const DeviceOptions& options) {
    auto core = internal::DeviceCore::make(host.core(), &backend, device, options);
    core.status().throw_if_error();
    return DeviceCommunicator(std::move(*core));
  }
  int rank() const { return communicator.rank(); }
  int size() const { return communicator.size(); }
  int device() const { return communicator.device(); }
  /// Waits for the stream, and throws what the communicator failed with.
  void synchronize() {
    stream.synchronize();
    if (communicator.state() != ErrorCode::ok) throw Error(communicator.state(), communicator.error_text());
  }

  Communicator host;
  internal::testing::RecordingBackend recorder;  ///< Sees what the communicator enqueues.
  DeviceCommunicator communicator;
  internal::TestStream stream;
};

inline void use_host_backend(const char* mode) {
  ::setenv("LOCKSTEP_DEVICE_BACKEND", "host", 0);
  ::setenv("LOCKSTEP_DEVICE_MODE", mode, 1);
}

/// Runs body(rank) in `world` processes and finalizes; exceptions become failures that name the rank.
inline void run_on_devices(int world, const char* mode, const std::function<void(DeviceRank&)>& body) {
  use_host_backend(mode);
  const MeetingPlace place;
  internal::testing::run_forked(world, [&](int rank) {
    try {
      DeviceRank self(rank, world, place, {});
      body(self);
      if (self.communicator.state() == ErrorCode::ok) self.communicator.finalize();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
  });
}

}  // namespace lockstep::testing
