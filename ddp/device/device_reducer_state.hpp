// The inside of a DeviceReducer. A step goes through
//   device_step.cpp     marks, buckets that start, wait()
// and between steps there is
//   device_plan.cpp     plans: the first, that of the observed order, with fewer parameters and with more
// Marks come from any thread with the stream that computes the gradient; buckets start in plan order on every
// rank. The communication stream waits for the streams of a bucket by events that are recorded when its last
// mark came: what these streams were given meanwhile is waited for too, which is harmless and keeps it at one
// event a bucket and stream. What a step's marks and its end mean is what they mean to a Reducer, by the same
// parts: PlanInUse, marks.hpp, ClosingExchange, the verdict.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ddp/closing_exchange.hpp"
#include "ddp/device/communication_stream.hpp"
#include "ddp/device/device_buckets.hpp"
#include "ddp/device/device_carrier.hpp"
#include "ddp/device/device_clock.hpp"
#include "ddp/device/device_undo.hpp"
#include "ddp/device/gradient_kernels.hpp"
#include "ddp/plan_in_use.hpp"
#include "ddp/step_state.hpp"
#include "lockstep/ddp/device_reducer.hpp"

namespace lockstep {

struct DeviceReducer::State {
  // device_reducer.cpp
  State(Communicator control, DeviceCommunicator& c, const DeviceReducerOptions& o);
  ~State();

  // device_plan.cpp
  void grow(std::span<const Parameter> added, const BucketPlan& more);
  void broadcast_values(std::size_t first);
  void use_plan(internal::MarkCounts marks);
  void rest();
  std::unique_ptr<internal::DeviceCarrier> make_carrier();
  bool rebuild();
  void move_gradients(const BucketPlan& next);
  void freeze(std::span<const std::size_t> list, Stream stream);
  void add_parameters(std::span<const Parameter> added);

  // device_step.cpp
  void check_index(const char* call, std::size_t parameter) const;
  void mark_ready(std::size_t parameter, Stream stream);
  void mark_unused(std::size_t parameter, Stream stream);
  void begin_marks(Stream stream);
  bool claim(const char* call, std::size_t parameter, bool has_gradient, Stream stream);
  void note_stream(std::size_t bucket, Stream stream);
  void note_streams(std::size_t parameter, Stream stream);
  void deliver(std::size_t parameter);
  bool starts_in_wait() const { return options.check_first || plan.learning; }
  void start_full_buckets();
  void start_all_buckets(Stream stream);
  void start_buckets(bool all);
  void start_bucket(std::size_t index);
  void clear_frozen(const BucketPlan::Bucket& bucket, std::byte* data);
  void complete_bucket(const BucketPlan::Bucket& bucket, std::byte* data);
  void alone(const std::function<void()>& action);
  void wait(Stream stream);
  void run_to_end(Stream stream);
  void look_first(Stream stream);
  void note_infinities();
  void judge(Stream stream);
  void take_back(Stream stream);
  void drop_step(Stream stream);
  void reset_step();
  bool begin_step(std::uint64_t samples, Stream stream);

  static constexpr const char* kOwner = "DeviceReducer";  // For messages.
  const DeviceReducerOptions options;
  const ReducerOptions rules;  // The same, as a Reducer would be given them.
  internal::Backend& backend;
  DeviceCommunicator communicator;  // A handle of its own: the caller may move or drop the other one.
  std::vector<Parameter> parameters;

  internal::PlanInUse plan;

  Communicator control;  // Of the reducer's own: its calls have their own order.
  struct Peers {         // They may wait in either group.
    DeviceCommunicator& device;
    Communicator& host;
    int rank() const { return host.rank(); }
    void abort(const std::string& reason) {
      device.abort(reason);
      host.abort(reason);
    }
  } peers{communicator, control};
  internal::ClosingExchange closing;
  internal::CommunicationStream stream;
  internal::DeviceBuckets buckets;
  std::optional<internal::DeviceUndo> undo;
  internal::DeviceClock clock;
  std::optional<internal::GradientKernels> kernels;

  std::mutex mutex;                          // Guards the next three while backward is enqueued.
  std::vector<std::vector<Stream>> streams;  // By bucket: those that its gradients were marked with.
  std::size_t started = 0;                   // Buckets of this step, in plan order.
  std::exception_ptr failure;                // What ended their start in backward, for wait().
  std::unique_ptr<internal::DeviceCarrier> carrier;
  std::uint64_t sent_before = 0;  // By carriers before.

  internal::StepState step;  // The one under way.
};

}  // namespace lockstep
