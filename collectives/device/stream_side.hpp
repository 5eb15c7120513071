// StreamSide: what the caller's streams are given of a call: words to wait for, or in modes stream_sync and
// device_sync the whole, which the worker then watches.
#pragma once

#include <memory>
#include <span>

#include "collectives/device/device_end.hpp"
#include "collectives/device/device_parts.hpp"
#include "collectives/device/device_worker.hpp"
#include "lib/device/held_streams.hpp"

namespace lockstep::internal {

/// For who holds the order of the calls. `streams`: those of one call, without doubles.
class StreamSide {
 public:
  using Streams = std::span<const DeviceStream>;
  /// All outlive it.
  StreamSide(DeviceParts& parts, DeviceEnd& end, DeviceWorker& worker)
      : parts_(parts), end_(end), worker_(worker) {}

  /// Whether streams run the task; else hold() is for it.
  bool run(const DeviceTask& task) const;
  /// The first of the streams runs it; the others wait for that. The worker has it before anything of it is
  /// enqueued, so that it is bounded as long as that takes; and lets go of the hold at its end. After an
  /// error it may have it: where task->watched is.
  Status start(const std::shared_ptr<DeviceTask>& task, Streams streams);
  /// Notes where the streams are, and makes them wait for the task's end.
  Status hold(DeviceTask& task, Streams streams);

  Result<bool> is_any_captured(Streams streams) const;
  bool can_be_captured(const DeviceTask& task) const;
  /// No event and no task: the call runs when the graph does, and as often. Its kernels have their own
  /// deadline; the worker looks from time to time whether the group ended.
  Status record_in_graph(DeviceTask& task, Streams streams);
  /// What the thread does, and the words that streams wait for, are of this one call. Peers hear nothing:
  /// they capture too, and no rank has made a call.
  Status refuse_capture(const DeviceTask& task) const;

 private:
  bool is_carried(const DeviceTask& task) const;
  bool sees_by_marks() const;
  Status prepare_watch(DeviceTask& task, Streams streams);
  Status note_begin(DeviceTask& task, WatchedCall& watched, DeviceStream stream);
  Status book(const DeviceTask& task, WatchedCall& watched);
  Status enqueue_watched(DeviceTask& task, Streams streams);
  Status join(DeviceTask& task, Streams streams);
  Status run_in_stream(CallRunner& runner, const DeviceTask& task, DeviceStream stream);
  void end_carried(const Status& why);
  Result<DeviceEvent> event_of(DeviceTask& task);

  DeviceParts& parts_;
  DeviceEnd& end_;
  DeviceWorker& worker_;
  Backend& backend_ = parts_.backend;
  HeldStreams& held_ = HeldStreams::of(parts_.device);
  const EngineGroup& group_ = parts_.groups.control->engine().group();
  EventPool& events_ = parts_.events;
  StreamOrder& order_ = parts_.order;
  StreamGate& gate_ = *parts_.gate;
  StreamMarks& marks_ = *parts_.marks;
  std::optional<StreamCalls>& stream_calls_ = parts_.stream_calls;
  CallRunner* const runner_ = parts_.runner;
  SyncRunner *const capturer_ = parts_.capturer, *const carrier_ = parts_.carrier;
  Courier* const courier_ = parts_.courier.get();
  AcrossHosts* const across_ = parts_.across.get();
};

}  // namespace lockstep::internal
