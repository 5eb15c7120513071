// WorkerSide: what the worker does with a task: it runs what no stream runs, watches the rest or carries what
// is for the network of it, and ends all.
#pragma once

#include <atomic>

#include "collectives/device/device_worker.hpp"
#include "collectives/device/stream_watch.hpp"
#include "lib/device/held_streams.hpp"

namespace lockstep::internal {

class WorkerSide {
 public:
  /// Both outlive it.
  WorkerSide(DeviceParts& parts, DeviceEnd& end) : parts_(parts), end_(end) {}

  DeviceWorker& worker() { return worker_; }
  /// The worker may be about to see what the streams have passed, and whoever saw that asks at once. No call
  /// to the driver: another one may keep its caller. From any other thread.
  void let_look();

 private:
  void run(DeviceTask& task);
  Status run_watched(const DeviceTask& task);
  Status carry(const DeviceTask& task);
  Status run_itself(const DeviceTask& task);
  Status wait_until_ready(const DeviceTask& task);
  void look_after_graphs();

  Status run_operation(const DeviceTask& task);
  Status run_collective(const DeviceTask& task);
  Status run_as_messages(const Call& call);
  Status run_messages(const DeviceTask& task);
  Status failed_here(const Status& why, const std::string& what) const;

  DeviceParts& parts_;
  DeviceEnd& end_;
  Backend& backend_ = parts_.backend;
  HeldStreams& held_ = HeldStreams::of(parts_.device);
  DeviceGroups& groups_ = parts_.groups;
  const DeviceStream stream_ = parts_.stream;
  StreamGate& gate_ = *parts_.gate;
  EventPool& events_ = parts_.events;
  SharedBuffers& buffers_ = *parts_.buffers;
  DeviceSteps& steps_ = *parts_.steps;
  DeviceMessenger& messenger_ = *parts_.messenger;
  Courier* const courier_ = parts_.courier.get();
  AcrossHosts* const across_ = parts_.across.get();
  StreamWatch watch_{parts_, end_};
  std::atomic<bool> works_itself_{false};  ///< It runs an operation, and watches none.
  DeviceWorker worker_{backend_, parts_.device, [this](DeviceTask& task) { run(task); },
                       [this] { look_after_graphs(); }};  ///< Last: its thread uses all others.
};

}  // namespace lockstep::internal
