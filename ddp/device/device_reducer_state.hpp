// The inside of a DeviceReducer. Marks come from any thread with the stream that computes the gradient;
// buckets start in plan order on every rank. The communication stream waits for the streams of a bucket by
// events that are recorded when its last mark came: what these streams were given meanwhile is waited for
// too, which is harmless and keeps it at one event a bucket and stream. What a step's marks and its end mean
// is what they mean to a Reducer, by the same parts: ReadyTracker, ClosingExchange, the verdict.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/closing_exchange.hpp"
#include "ddp/device/communication_stream.hpp"
#include "ddp/device/device_buckets.hpp"
#include "ddp/device/device_carrier.hpp"
#include "ddp/device/gradient_kernels.hpp"
#include "ddp/ready_tracker.hpp"
#include "ddp/step_record.hpp"
#include "ddp/step_state.hpp"
#include "lockstep/ddp/device_reducer.hpp"

namespace lockstep {

struct DeviceReducer::State {
  // device_reducer.cpp
  State(Communicator control, DeviceCommunicator& c, std::span<const Parameter> p,
        const DeviceReducerOptions& o);
  ~State();
  void broadcast_values();

  // device_step.cpp
  void check_index(const char* call, std::size_t parameter) const;
  void mark_ready(std::size_t parameter, Stream stream);
  void mark_unused(std::size_t parameter, Stream stream);
  void begin_marks();
  void claim(const char* call, std::size_t parameter);
  void note_stream(std::size_t bucket, Stream stream);
  void deliver(std::size_t parameter, Stream stream);
  void start_full_buckets();
  void start_all_buckets(Stream stream);
  void start_bucket(std::size_t index);
  void complete_bucket(const BucketPlan::Bucket& bucket, std::byte* data);
  void wait(Stream stream);
  void run_to_end(Stream stream);
  void settle_marks();
  void look_for_infinities();
  void reset_step();
  bool begin_step(std::uint64_t samples, Stream stream);
  void require_between_steps(const char* call) const;

  const DeviceReducerOptions options;
  internal::Backend& backend;
  DeviceCommunicator& communicator;
  const std::vector<Parameter> parameters;
  const BucketPlan plan;
  const std::vector<std::vector<internal::PartPlace>> places;
  internal::ReadyTracker tracker;
  Communicator control;  // Of the reducer's own: its calls have their own order.
  internal::ClosingExchange closing;
  internal::CommunicationStream stream;
  const internal::DeviceBlock buckets;
  const std::vector<std::byte*> gradients;
  internal::GradientKernels kernels;

  std::mutex mutex;                          // Guards the next two while backward is enqueued.
  std::vector<std::vector<Stream>> streams;  // By bucket: those that its gradients were marked with.
  std::size_t started = 0;                   // Buckets of this step, in plan order.
  const std::unique_ptr<internal::DeviceCarrier> carrier;

  internal::StepState step;  // The one under way.
  int pauses = 0;            // NoSyncs alive.
};

}  // namespace lockstep
