// DeviceCore: what a DeviceCommunicator handle points to: its parts, and the three that work with them: the
// caller's threads, the worker's, and whoever sees it end.
//
// Beside it stands a host communicator of the same ranks, `control`, for the set-up and for the words of
// sends and receives. In mode host_sync an engine whose domain is the ranks' device memory runs the same
// programs as in shared memory: order, mismatches, deadlines, revokes are its. The worker waits on the host
// for the caller's stream, for its own stream, and for the peers; the caller's stream waits for the worker.
// In modes stream_sync and device_sync the caller's stream runs the programs; the worker watches for
// deadlines, mismatches and revokes, and lets the stream's waits pass when the group ended.
// On several hosts all this is so among the ranks of one host, `near`; AcrossHosts makes one of what the
// hosts do. What passes between them the worker carries, in all modes.
#pragma once

#include <memory>
#include <string>

#include "collectives/device/caller_side.hpp"
#include "collectives/device/device_end.hpp"
#include "collectives/device/device_parts.hpp"
#include "collectives/device/worker_side.hpp"

namespace lockstep::internal {

class DeviceCore {
 public:
  /// As DeviceParts::make().
  static Result<std::shared_ptr<DeviceCore>> make(CommunicatorCore& communicator, Result<Backend*> backend,
                                                  int device, const DeviceOptions& options);
  /// Aborts what is in flight, and waits until the caller's streams have passed it.
  ~DeviceCore();

  /// Whose group and sequence the calls belong to.
  Engine& engine() { return parts_->groups.engine(); }
  int device() const { return parts_->device; }
  DeviceMode mode() const { return parts_->decision.mode; }
  bool takes_turns() const { return parts_->decision.take_turns; }
  std::string describe() const { return parts_->describe(); }

  CallerSide& caller() { return caller_; }

  Status register_buffer(void* pointer, std::size_t bytes);
  Status register_window(void* pointer, std::size_t bytes, bool same_places);
  Status deregister(void* pointer);
  bool is_registered(const void* pointer, std::size_t bytes) const;

  Status wait();
  /// Why the communicator is not usable any more.
  Status state();
  void abort(std::string_view reason);
  Status finalize();

 private:
  explicit DeviceCore(std::unique_ptr<DeviceParts> parts);
  bool have_streams_passed() const;
  Status open_window(std::byte* base, std::size_t bytes);

  const std::unique_ptr<DeviceParts> parts_;
  DeviceEnd end_{*parts_};
  WorkerSide worker_{*parts_, end_};  ///< Its thread ends before what it works with.
  CallerSide caller_{*parts_, end_, worker_.worker()};
};

}  // namespace lockstep::internal
