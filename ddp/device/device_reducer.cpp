// DeviceReducer: marks come from any thread with the stream that computes the gradient; buckets start in plan
// order. The communication stream waits for the streams of a bucket by events that are recorded when its last
// mark came: what these streams were given meanwhile is waited for too, which is harmless and keeps it at one
// event a bucket and stream.
#include "lockstep/ddp/device_reducer.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/device/device_buckets.hpp"
#include "ddp/device/device_carrier.hpp"
#include "ddp/parameter_check.hpp"
#include "ddp/ready_tracker.hpp"
#include "lockstep/ddp/hooks.hpp"
#include "lockstep/ddp/reducer_options.hpp"

namespace lockstep {
namespace {

using internal::Backend;
using internal::DeviceBlock;
using internal::DeviceRoute;
using internal::DeviceScope;

const char* short_name(DeviceCompression compression) {
  static constexpr const char* kNames[] = {"none", "bf16", "f16", "f8e4m3", "f8e5m2", "i8"};
  return kNames[static_cast<std::size_t>(compression)];
}

/// What a Reducer with the same plan and the same numbers on the wire would be given: for the comparison
/// among ranks.
ReducerOptions host_options(const DeviceReducerOptions& options) {
  ReducerOptions host;
  host.bucket_bytes = options.bucket_bytes;
  host.first_bucket_bytes = options.first_bucket_bytes;
  host.average = options.average;
  host.rebuild = false;
  if (options.compression < DeviceCompression::f8e4m3) {
    host.hook = hook_by_name(short_name(options.compression));
    return host;
  }
  const DataType types[] = {DataType::f8e4m3, DataType::f8e5m2, DataType::i8};
  const auto index =
      static_cast<std::size_t>(options.compression) - static_cast<std::size_t>(DeviceCompression::f8e4m3);
  host.hook = make_quantised_hook({types[index], options.block, false});
  return host;
}

std::unique_ptr<internal::DeviceCarrier> make_carrier(const DeviceRoute& route, const BucketPlan& plan,
                                                      const DeviceReducerOptions& options) {
  const auto quantised = [&](DataType type) {
    return internal::make_quantised_device_carrier(route, plan, type, options.block);
  };
  if (route.ranks() == 1) return internal::make_plain_device_carrier(route);
  switch (options.compression) {
    case DeviceCompression::none:
      return internal::make_plain_device_carrier(route);
    case DeviceCompression::bf16:
      return internal::make_half_device_carrier(route, plan, DataType::bf16);
    case DeviceCompression::f16:
      return internal::make_half_device_carrier(route, plan, DataType::f16);
    case DeviceCompression::f8e4m3:
      return quantised(DataType::f8e4m3);
    case DeviceCompression::f8e5m2:
      return quantised(DataType::f8e5m2);
    case DeviceCompression::i8:
      return quantised(DataType::i8);
  }
  throw Error(ErrorCode::invalid_argument, "DeviceReducerOptions::compression has no meaning");
}

Backend& backend_or_throw() {
  internal::Result<Backend*> backend = internal::device_backend();
  backend.status().throw_if_error();
  return **backend;
}

/// The communication stream, and how other streams wait for it or it for them.
class CommunicationStream {
 public:
  CommunicationStream(Backend& backend, int device) : backend_(backend), device_(device) {
    const DeviceScope scope(backend_, device_);
    scope.status().throw_if_error();
    internal::Result<internal::DeviceStream> stream = backend_.create_stream(Backend::Priority::high);
    stream.status().throw_if_error();
    internal::Result<internal::DeviceEvent> event = backend_.create_event();
    if (!event.ok()) static_cast<void>(backend_.destroy_stream(*stream));
    event.status().throw_if_error();
    stream_ = *stream;
    event_ = *event;
  }
  ~CommunicationStream() {
    const DeviceScope scope(backend_, device_);
    static_cast<void>(backend_.destroy_event(event_));
    static_cast<void>(backend_.destroy_stream(stream_));
  }
  CommunicationStream(const CommunicationStream&) = delete;
  CommunicationStream& operator=(const CommunicationStream&) = delete;

  internal::DeviceStream get() const { return stream_; }
  void drain() { static_cast<void>(backend_.synchronize(stream_)); }
  void wait_for(Stream other) { order(other, stream_); }
  void let_wait(Stream other) { order(stream_, other); }

 private:
  /// One event is enough: a wait binds to the record before it.
  void order(Stream earlier, Stream later) {
    backend_.record(event_, earlier).throw_if_error();
    backend_.wait_event(later, event_).throw_if_error();
  }

  Backend& backend_;
  const int device_;
  internal::DeviceStream stream_ = nullptr;
  internal::DeviceEvent event_ = nullptr;
};

}  // namespace

struct DeviceReducer::State {
  State(DeviceCommunicator& c, std::span<const Parameter> p, const DeviceReducerOptions& options)
      : backend(backend_or_throw()),
        communicator(c),
        parameters(p.begin(), p.end()),
        plan(plan_buckets(p, host_options(options))),
        places(internal::places_of(plan, p.size())),
        tracker(plan, p.size()),
        stream(backend, c.device()),
        buckets(backend, c, internal::bucket_bytes(plan), stream.get()),
        gradients(internal::gradient_places(plan, buckets, p.size())),
        streams(plan.buckets.size()),
        carrier(make_carrier({backend, c, stream.get(), options.average}, plan, options)) {}

  ~State() {
    if (marked.load()) communicator.abort("a DeviceReducer was destroyed in the midst of a step");
    stream.drain();
  }

  void check_index(const char* call, std::size_t parameter) const {
    if (parameter < parameters.size()) return;
    throw Error(ErrorCode::invalid_argument, std::string(call) + "(" + std::to_string(parameter) +
                                                 "): the reducer has " + std::to_string(parameters.size()) +
                                                 " parameters, numbered from 0");
  }

  /// The peers wait for this rank's gradients.
  [[noreturn]] void fail(const std::string& what) {
    communicator.abort(what);
    throw Error(ErrorCode::invalid_argument, what, communicator.rank());
  }

  void broadcast_values() {
    const DeviceScope scope(backend, communicator.device());
    scope.status().throw_if_error();
    for (const Parameter& parameter : parameters) {
      const std::size_t count = internal::element_count(parameter).value();
      if (count == 0) continue;
      communicator.broadcast(parameter.value, parameter.value, count, parameter.type, 0, stream.get());
    }
    communicator.wait();
    backend.synchronize(stream.get()).throw_if_error();
  }

  void mark(std::size_t i, Stream other) {
    check_index("mark_ready", i);
    if (tracker.mark(i) != internal::ReadyTracker::Mark::last) {
      fail("mark_ready(" + std::to_string(i) + "): \"" + parameters[i].name +
           "\" was already marked in this step; mark every gradient once");
    }
    for (const internal::PartPlace& place : places[i]) {
      {
        const std::lock_guard lock(mutex);
        std::vector<Stream>& seen = streams[place.bucket];
        if (std::find(seen.begin(), seen.end(), other) == seen.end()) seen.push_back(other);
      }
      if (tracker.complete(place.bucket)) start_full_buckets();
    }
    marked.store(true);
  }

  void start_full_buckets() {
    const std::lock_guard lock(mutex);
    const DeviceScope scope(backend, communicator.device());
    scope.status().throw_if_error();
    for (; started < plan.buckets.size() && tracker.full(started); ++started) {
      for (const Stream other : streams[started]) stream.wait_for(other);
      carrier->start(started, plan.buckets[started], buckets.part(started));
    }
  }

  void wait(Stream other) {
    if (const std::vector<std::size_t> missing = tracker.unmarked(); !missing.empty()) {
      fail("wait(): " + std::to_string(missing.size()) + " gradients were not marked, the first is \"" +
           parameters[missing.front()].name + "\"; mark every gradient before wait()");
    }
    const DeviceScope scope(backend, communicator.device());
    scope.status().throw_if_error();
    stream.let_wait(other);
    for (std::vector<Stream>& seen : streams) seen.clear();
    started = 0;
    marked.store(false);
    tracker.reset();
  }

  Backend& backend;
  DeviceCommunicator& communicator;
  const std::vector<Parameter> parameters;
  const BucketPlan plan;
  const std::vector<std::vector<internal::PartPlace>> places;
  internal::ReadyTracker tracker;
  CommunicationStream stream;
  const DeviceBlock buckets;
  const std::vector<std::byte*> gradients;

  std::atomic<bool> marked{false};           // In the midst of a step.
  std::mutex mutex;                          // Guards the next two while backward is enqueued.
  std::vector<std::vector<Stream>> streams;  // By bucket: those that its gradients were marked with.
  std::size_t started = 0;                   // Buckets of this step, in plan order.
  const std::unique_ptr<internal::DeviceCarrier> carrier;
};

DeviceReducer::DeviceReducer(Communicator& control, DeviceCommunicator& communicator,
                             std::span<const Parameter> parameters, const DeviceReducerOptions& options) {
  static_cast<void>(internal::check_parameters(control, parameters, host_options(options)));
  try {
    const DeviceScope scope(backend_or_throw(), communicator.device());
    scope.status().throw_if_error();
    state_ = std::make_unique<State>(communicator, parameters, options);
  } catch (const Error& error) {  // No memory here, while the peers are on their way to the broadcast.
    communicator.abort("DeviceReducer on rank " + std::to_string(communicator.rank()) + ": " + error.what());
    throw;
  }
  state_->broadcast_values();
}

DeviceReducer::~DeviceReducer() = default;
DeviceReducer::DeviceReducer(DeviceReducer&&) noexcept = default;

void* DeviceReducer::gradient(std::size_t parameter) const {
  state_->check_index("gradient", parameter);
  return state_->gradients[parameter];
}

void DeviceReducer::mark_ready(std::size_t parameter, Stream stream) { state_->mark(parameter, stream); }
void DeviceReducer::wait(Stream stream) { state_->wait(stream); }
const BucketPlan& DeviceReducer::plan() const noexcept { return state_->plan; }
std::uint64_t DeviceReducer::bytes_on_wire() const noexcept { return state_->carrier->bytes_on_wire(); }

}  // namespace lockstep
