// StreamWatch: the worker's eye on what the caller's stream runs itself, until it has passed that; and on the
// way of calls between hosts.
#pragma once

#include <atomic>

#include "collectives/device/device_end.hpp"
#include "collectives/device/device_parts.hpp"

namespace lockstep::internal {

/// For the worker, but for looks(). A task has a WatchedCall, which may still be being enqueued, where not
/// said otherwise.
class StreamWatch {
 public:
  /// Both outlive it.
  StreamWatch(DeviceParts& parts, DeviceEnd& end) : parts_(parts), end_(end) {}

  /// Until the stream has come to the call. No call to the driver.
  Status wait_until_begun(const DeviceTask& task);
  /// The network's part of a collective between hosts. No call to the driver here, either.
  Status carry_columns(const DeviceTask& task);
  /// In host_sync, where there is no WatchedCall: all of a collective between hosts; of one that passes as
  /// messages what comes before these.
  Status run_between_hosts(const DeviceTask& task);
  /// Until the stream has passed the call, or it cannot any more.
  Status watch(const DeviceTask& task);
  /// How often watch() looked at a call that its stream had not passed. From any thread.
  std::uint64_t looks() const { return looks_; }
  /// A rank may leave without a failure once it is through with its own operations; kernels that wait for
  /// what it would have to do next are to end.
  void heed_leavers();
  /// After a failure the stream's waits are let pass, again and again: peers that are still alive go on
  /// writing their phases. Its caller may still be enqueuing, and be kept by a full stream: no lock is taken
  /// here.
  void let_pass(const DeviceTask& task);

 private:
  Result<bool> has_reached(const DeviceTask& task) const;
  Result<bool> has_passed(const DeviceTask& task) const;
  Status look_after(const DeviceTask& task);
  RelayWatch between_hosts(const DeviceTask& task);
  Status compare_with_all(const DeviceTask& task, Nanos end);
  Status heed_deadline(const DeviceTask& task, Nanos now);
  Status gave_up(const DeviceTask& task) const;
  Status late(const DeviceTask& task, int awaited) const;

  DeviceParts& parts_;
  DeviceEnd& end_;
  Backend& backend_ = parts_.backend;
  DeviceGroups& groups_ = parts_.groups;
  const DeviceStream stream_ = parts_.stream;
  StreamMarks& marks_ = *parts_.marks;
  std::optional<StreamCalls>& stream_calls_ = parts_.stream_calls;
  CallRunner* const runner_ = parts_.runner;
  SyncRunner* const sync_runner_ = parts_.sync_runner.get();
  AcrossHosts* const across_ = parts_.across.get();
  std::atomic<std::uint64_t> looks_{0};
};

}  // namespace lockstep::internal
