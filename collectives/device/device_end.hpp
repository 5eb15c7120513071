// DeviceEnd: how a communicator of devices ends on a rank: by the first failure, which all groups are told
// and which lets everything pass that waits, or in good order.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "collectives/device/device_parts.hpp"

namespace lockstep::internal {

class DeviceEnd {
 public:
  /// `parts` outlive it.
  explicit DeviceEnd(DeviceParts& parts) : parts_(parts) {}

  // From any thread.
  /// The first failure ends everything: all groups are revoked, and every later task passes at once.
  void fail(const Status& why);
  Status failure() const;
  /// What this rank has heard of so far. Blocks for a moment where a failure is about to be told.
  Status known_state();
  bool is_finished() const { return finished_; }
  /// Why a kernel gave up a wait.
  std::optional<CallTrouble> trouble() const;
  /// What streams and kernels wait for in pinned memory: no call to the driver.
  void release_waits();
  /// That of graphs, by the device, which is selected.
  void let_graphs_pass();

  // For who holds the order of the calls.
  /// A call is in a graph. Whether it is the first.
  bool note_recorded() { return !recorded_.exchange(true); }
  /// In good order.
  void finish();

  /// For the worker, after a failure: nobody writes to this rank's memory any more, or the error says that it
  /// may be so.
  void close();

 private:
  void heed_kernels();

  DeviceParts& parts_;
  DeviceGroups& groups_ = parts_.groups;
  const DeviceStream stream_ = parts_.stream;
  const DeviceWindows& windows_ = parts_.windows;
  DeviceSteps& steps_ = *parts_.steps;
  SyncRunner *const sync_runner_ = parts_.sync_runner.get(), *const capturer_ = parts_.capturer;
  Courier* const courier_ = parts_.courier.get();
  AcrossHosts* const across_ = parts_.across.get();
  std::atomic<bool> recorded_{false}, finished_{false};
  mutable std::mutex mutex_;  ///< Guards the next. Taken last.
  Status failure_;
};

}  // namespace lockstep::internal
