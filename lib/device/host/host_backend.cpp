#include "lib/device/host/host_backend.hpp"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lib/device/host/host_kernels.hpp"

namespace lockstep::internal {
namespace {

thread_local int selected_device = 0;

Status check_device(int device) {
  if (device >= 0 && device < HostBackend::kDevices) return Status();
  return Status(ErrorCode::invalid_argument, "device " + std::to_string(device) +
                                                 " does not exist: there are " +
                                                 std::to_string(HostBackend::kDevices) + ", from 0");
}

template <typename T>
std::vector<T> owned(std::span<const T> list) {
  return {list.begin(), list.end()};
}

}  // namespace

HostBackend::~HostBackend() {
  const auto drain = [](HostStream& stream) { stream.synchronize(); };
  for (auto& [handle, stream] : streams_) drain(*stream);
  for (auto& stream : default_streams_) {
    if (stream != nullptr) drain(*stream);
  }
}

Result<DeviceIdentity> HostBackend::identify(int device) {
  LOCKSTEP_RETURN_IF_ERROR(check_device(device));
  DeviceIdentity identity;
  identity.uuid = {'l', 'o', 'c', 'k', 's', 't', 'e', 'p', 'h', 'o', 's', 't'};
  identity.uuid.back() = static_cast<std::uint8_t>(device);
  identity.name = "host device " + std::to_string(device);
  identity.memory = std::uint64_t{1} << 30;
  identity.multiprocessors = 1;
  identity.kernels_of_processes_overlap = true;
  identity.stream_memory_operations = true;
  identity.exports_descriptors = true;
  return identity;
}

Result<int> HostBackend::selected() { return selected_device; }

Status HostBackend::select(int device) {
  LOCKSTEP_RETURN_IF_ERROR(check_device(device));
  selected_device = device;
  return Status();
}

Result<bool> HostBackend::can_access(int device, int peer) {
  LOCKSTEP_RETURN_IF_ERROR(check_device(device));
  LOCKSTEP_RETURN_IF_ERROR(check_device(peer));
  return true;
}

Status HostBackend::enable_peer(int device, int peer) { return can_access(device, peer).status(); }

Result<void*> HostBackend::allocate(int device, std::size_t bytes, MemoryKind kind) {
  LOCKSTEP_RETURN_IF_ERROR(check_device(device));
  return memory_.allocate(device, bytes, kind);
}

Result<void*> HostBackend::import_memory(const MemoryExport& memory) {
  return memory_.import_memory(selected_device, memory);
}

// Streams and events.

Result<DeviceStream> HostBackend::create_stream(Priority) {
  auto stream = std::make_shared<HostStream>(selected_device);
  const std::lock_guard lock(mutex_);
  const DeviceStream handle = stream.get();
  streams_.emplace(handle, std::move(stream));
  return handle;
}

Status HostBackend::destroy_stream(DeviceStream handle) {
  const std::lock_guard lock(mutex_);
  if (streams_.erase(handle) == 1) return Status();
  return Status(ErrorCode::invalid_argument, "this stream was not made by create_stream(), or is destroyed");
}

Result<std::shared_ptr<HostStream>> HostBackend::stream_of(DeviceStream handle) {
  const std::lock_guard lock(mutex_);
  if (handle == nullptr) {
    auto& stream = default_streams_[static_cast<std::size_t>(selected_device)];
    if (stream == nullptr) stream = std::make_shared<HostStream>(selected_device);
    return stream;
  }
  const auto found = streams_.find(handle);
  if (found != streams_.end()) return found->second;
  return Status(ErrorCode::invalid_argument, "no such stream: it was destroyed, or is of another backend");
}

Result<std::shared_ptr<HostStream>> HostBackend::running_stream_of(DeviceStream handle, const char* what) {
  Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok() || !stream.value()->recording()) return stream;
  return Status(ErrorCode::invalid_argument,
                std::string(what) + " is not possible while the stream is being captured in a graph");
}

Status HostBackend::synchronize(DeviceStream handle) {
  Result<std::shared_ptr<HostStream>> stream = running_stream_of(handle, "waiting for it");
  if (!stream.ok()) return stream.status();
  stream.value()->synchronize();
  return Status();
}

Result<bool> HostBackend::idle(DeviceStream handle) {
  Result<std::shared_ptr<HostStream>> stream = running_stream_of(handle, "asking for its state");
  if (!stream.ok()) return stream.status();
  return stream.value()->idle();
}

// Graphs.

Result<bool> HostBackend::capturing(DeviceStream handle) {
  const Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok()) return stream.status();
  return stream.value()->recording();
}

Status HostBackend::begin_capture(DeviceStream handle) {
  if (handle == nullptr)
    return Status(ErrorCode::invalid_argument, "the default stream cannot be captured: create one");
  Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok()) return stream.status();
  if (stream.value()->begin_recording()) return Status();
  return Status(ErrorCode::invalid_argument, "the stream is being captured already");
}

Result<DeviceGraph> HostBackend::end_capture(DeviceStream handle) {
  Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok()) return stream.status();
  auto tasks = stream.value()->end_recording();
  if (!tasks) return Status(ErrorCode::invalid_argument, "the stream is not being captured");
  auto graph = std::make_shared<const HostGraph>(HostGraph{stream.value()->device(), std::move(*tasks)});
  const std::lock_guard lock(mutex_);
  const DeviceGraph made = const_cast<HostGraph*>(graph.get());
  graphs_.emplace(made, std::move(graph));
  return made;
}

Status HostBackend::replay(DeviceGraph handle, DeviceStream stream) {
  std::shared_ptr<const HostGraph> graph;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = graphs_.find(handle); found != graphs_.end()) graph = found->second;
  }
  if (graph == nullptr)
    return Status(ErrorCode::invalid_argument, "no such graph: it was destroyed, or is of another backend");
  return enqueue(stream, [graph] {
    for (const HostStream::Task& task : graph->tasks) task();
  });
}

Status HostBackend::destroy_graph(DeviceGraph handle) {
  const std::lock_guard lock(mutex_);
  if (graphs_.erase(handle) == 1) return Status();
  return Status(ErrorCode::invalid_argument, "this graph was not made by end_capture(), or is destroyed");
}

Result<DeviceEvent> HostBackend::create_event() {
  auto event = std::make_shared<HostEvent>();
  const std::lock_guard lock(mutex_);
  const DeviceEvent handle = event.get();
  events_.emplace(handle, std::move(event));
  return handle;
}

Status HostBackend::destroy_event(DeviceEvent handle) {
  const std::lock_guard lock(mutex_);
  if (events_.erase(handle) == 1) return Status();
  return Status(ErrorCode::invalid_argument, "this event was not made by create_event(), or is destroyed");
}

Result<std::shared_ptr<HostEvent>> HostBackend::event_of(DeviceEvent handle) {
  const std::lock_guard lock(mutex_);
  const auto found = events_.find(handle);
  if (found != events_.end()) return found->second;
  return Status(ErrorCode::invalid_argument, "no such event: it was destroyed, or is of another backend");
}

Status HostBackend::record(DeviceEvent handle, DeviceStream stream_handle) {
  Result<std::shared_ptr<HostEvent>> event = event_of(handle);
  if (!event.ok()) return event.status();
  Result<std::shared_ptr<HostStream>> stream = running_stream_of(stream_handle, "recording an event");
  if (!stream.ok()) return stream.status();
  event.value()->record(*stream.value());
  return Status();
}

Result<bool> HostBackend::query(DeviceEvent handle) {
  Result<std::shared_ptr<HostEvent>> event = event_of(handle);
  if (!event.ok()) return event.status();
  const std::shared_ptr<Milestone> last = event.value()->last();
  return last == nullptr || last->reached();
}

Status HostBackend::synchronize_event(DeviceEvent handle) {
  Result<std::shared_ptr<HostEvent>> event = event_of(handle);
  if (!event.ok()) return event.status();
  if (const std::shared_ptr<Milestone> last = event.value()->last()) last->wait();
  return Status();
}

Result<double> HostBackend::elapsed_us(DeviceEvent start, DeviceEvent end) {
  std::array<Nanos, 2> passed{};
  for (std::size_t i = 0; i < passed.size(); ++i) {
    Result<std::shared_ptr<HostEvent>> event = event_of(i == 0 ? start : end);
    if (!event.ok()) return event.status();
    const std::shared_ptr<Milestone> last = event.value()->last();
    if (last == nullptr || !last->reached())
      return Status(ErrorCode::invalid_argument, "an event was not recorded, or has not passed yet");
    passed[i] = last->reached_at();
  }
  constexpr double kNanosPerMicrosecond = 1e3;
  return static_cast<double>(passed[1] - passed[0]) / kNanosPerMicrosecond;
}

Status HostBackend::wait_event(DeviceStream stream_handle, DeviceEvent handle) {
  Result<std::shared_ptr<HostEvent>> event = event_of(handle);
  if (!event.ok()) return event.status();
  Result<std::shared_ptr<HostStream>> stream = running_stream_of(stream_handle, "waiting for an event");
  if (!stream.ok()) return stream.status();
  if (const std::shared_ptr<Milestone> last = event.value()->last()) {
    stream.value()->enqueue([last] { last->wait(); });
  }
  return Status();
}

// Enqueued.

Status HostBackend::enqueue(DeviceStream handle, HostStream::Task task) {
  Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok()) return stream.status();
  if (stream.value()->device() != selected_device) {
    return Status(ErrorCode::invalid_argument,
                  "the stream belongs to device " + std::to_string(stream.value()->device()) +
                      ", but this thread works on device " + std::to_string(selected_device) +
                      ": select the stream's device first");
  }
  stream.value()->enqueue(std::move(task));
  return Status();
}

Status HostBackend::copy(void* destination, const void* source, std::size_t bytes, DeviceStream stream) {
  return enqueue(stream, [=] { std::memcpy(destination, source, bytes); });
}

Status HostBackend::fill(void* destination, std::uint8_t value, std::size_t bytes, DeviceStream stream) {
  return enqueue(stream, [=] { std::memset(destination, value, bytes); });
}

Status HostBackend::reduce(const ReduceJob& job, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(check_job(job));
  return enqueue(stream, [job, sources = owned(job.sources), factors = owned(job.factors),
                          destinations = std::vector(job.destinations.begin(), job.destinations.end())] {
    ReduceJob own = job;
    own.sources = sources;
    own.destinations = destinations;
    own.factors = factors;
    host_kernels::reduce(own);
  });
}

Status HostBackend::convert(const ConvertJob& job, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(check_job(job));
  return enqueue(stream, [job] { host_kernels::convert(job); });
}

Status HostBackend::quantise(const QuantiseJob& job, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(check_job(job));
  return enqueue(stream, [job] { host_kernels::quantise(job); });
}

Status HostBackend::dequantise(const DequantiseJob& job, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(check_job(job));
  return enqueue(stream, [job] { host_kernels::dequantise(job); });
}

Status HostBackend::operate(std::span<const WordOperation> operations, DeviceStream stream) {
  return enqueue(stream, [list = owned(operations)] { host_kernels::operate(list); });
}

Status HostBackend::launch(const KernelLaunch& kernel, DeviceStream stream) {
  if (kernel.on_host == nullptr || kernel.argument_bytes > KernelLaunch::kArgumentBytes) {
    return Status(ErrorCode::invalid_argument,
                  std::string("kernel ") + kernel.name + " has no body for the host, or too many arguments");
  }
  const auto* const first = static_cast<const std::byte*>(kernel.arguments);
  return enqueue(stream,
                 [body = kernel.on_host, arguments = std::vector(first, first + kernel.argument_bytes)] {
                   body(arguments.data());
                 });
}

}  // namespace lockstep::internal
