// CallerSide: from a call to a task of the worker: checks, the order of the calls, and refusals.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "collectives/device/shared_streams.hpp"
#include "collectives/device/stream_side.hpp"

namespace lockstep::internal {

/// Thread-safe.
class CallerSide {
 public:
  /// All outlive it.
  CallerSide(DeviceParts& parts, DeviceEnd& end, DeviceWorker& worker);

  /// Enqueues a collective. `copy_from`: where the input of a broadcast's root lies; null: in its buffer.
  Status start(CallBuilder builder, Stream stream, const DeviceCallOptions& options, const void* copy_from);
  /// Enqueues messages that do not wait for one another.
  Status start(std::vector<DeviceMessage> messages, const DeviceCallOptions& options);
  /// While this is held nothing is enqueued.
  std::unique_lock<std::mutex> hold_order() { return std::unique_lock(order_mutex_); }

 private:
  using Streams = StreamSide::Streams;
  Status enqueue(const std::shared_ptr<DeviceTask>& task, Streams streams);
  Status find_refusal(DeviceTask& task, const Result<bool>& captured, Streams streams);
  std::vector<SharedStreams::Stream> numbers_of(Streams streams) const;
  Status check_stream(const Call& call, DeviceStream stream);
  Status push_refused(const std::shared_ptr<DeviceTask>& task, Status refusal);

  DeviceParts& parts_;
  DeviceEnd& end_;
  DeviceWorker& worker_;
  Backend& backend_ = parts_.backend;
  const int device_ = parts_.device;
  DeviceGroups& groups_ = parts_.groups;
  const bool has_ranks_beside_;  ///< In this process.
  std::mutex order_mutex_;       ///< The order of the calls; guards what follows.
  StreamSide streams_{parts_, end_, worker_};
  std::uint64_t calls_ = 0;  ///< Collectives; the same ones on all ranks.
};

}  // namespace lockstep::internal
