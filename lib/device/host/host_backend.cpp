#include "lib/device/host/host_backend.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lib/device/held_streams.hpp"

namespace lockstep::internal {
namespace {

/// -1: it has chosen none, and works on device 0.
thread_local int chosen_device = -1;
int selected_device() { return std::max(chosen_device, 0); }

/// kStreamPerThread, by device.
thread_local std::array<DeviceStream, HostBackend::kDevices> own_streams{};

Status check_device(int device) {
  if (device >= 0 && device < HostBackend::kDevices) return Status();
  return Status(ErrorCode::invalid_argument, "device " + std::to_string(device) +
                                                 " does not exist: there are " +
                                                 std::to_string(HostBackend::kDevices) + ", from 0");
}

/// From here on a call that others wait for is taken for one that never ends.
constexpr std::chrono::milliseconds kPatience{2000};
std::atomic<int> hangs_seen{0};

void tell_of_hang() {
  if (hangs_seen.fetch_add(1) > 0) return;
  std::fputs(
      "lockstep: a call waits for a stream (it copies memory that is not pinned, or frees some), and others "
      "wait for the call, maybe the one that the stream waits for: on a GPU the program may hang here. Copy "
      "to pinned memory, or synchronize before (docs/gpu.md)\n",
      stderr);
}

}  // namespace

HostBackend::~HostBackend() {
  for (int device = 0; device < kDevices; ++device) {
    for (const auto& stream : streams_of(device)) stream->synchronize();
  }
}

// Who blocks whom.

int HostBackend::hangs() { return hangs_seen.load(); }

int HostBackend::some_device() {
  if (chosen_device >= 0) return chosen_device;
  for (int device = 0; device < kDevices; ++device) {
    if (has_context(device)) return device;
  }
  return 0;
}

HostBackend::Served HostBackend::serve() { return serve(selected_device()); }
HostBackend::Served HostBackend::serve(int device) {
  counter(device).has_context = true;
  return queue_at(device);
}

HostBackend::Served HostBackend::queue_at(int device) {
  Counter& at = counter(device);
  at.waiting.fetch_add(1);
  Served served(at.mutex);
  at.waiting.fetch_sub(1);
  return served;
}

std::vector<std::shared_ptr<HostStream>> HostBackend::streams_of(int device) {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<HostStream>> streams;
  for (auto& [handle, stream] : streams_) {
    if (stream->device() == device) streams.push_back(stream);
  }
  for (const auto& stream : destroyed_streams_) {
    if (stream->device() == device) streams.push_back(stream);
  }
  if (auto& stream = default_streams_[static_cast<std::size_t>(device)]; stream != nullptr)
    streams.push_back(stream);
  return streams;
}

void HostBackend::block(int device, Served& served, const std::shared_ptr<HostStream>& one) {
  for (const auto& stream : one != nullptr ? std::vector{one} : streams_of(device)) {
    while (!stream->synchronize_for(kPatience)) {
      if (!served.owns_lock() || counter(device).waiting.load() == 0) continue;
      tell_of_hang();
      served.unlock();
    }
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
  return identity;
}

Result<int> HostBackend::selected() { return selected_device(); }

Status HostBackend::select(int device) { return enter(device).status(); }

Result<ThreadDevice> HostBackend::enter(int device) {
  LOCKSTEP_RETURN_IF_ERROR(check_device(device));
  counter(device).has_context = true;
  return static_cast<ThreadDevice>(std::exchange(chosen_device, device) + 1);
}

void HostBackend::leave(ThreadDevice before) noexcept { chosen_device = static_cast<int>(before) - 1; }

Result<bool> HostBackend::can_access(int device, int peer) {
  LOCKSTEP_RETURN_IF_ERROR(check_device(device));
  LOCKSTEP_RETURN_IF_ERROR(check_device(peer));
  return true;
}

Status HostBackend::enable_peer(int device, int peer) {
  LOCKSTEP_RETURN_IF_ERROR(can_access(device, peer).status());
  for (const int one : {device, peer}) counter(one).has_context = true;
  return Status();
}

Result<void*> HostBackend::allocate(int device, std::size_t bytes, MemoryKind kind) {
  LOCKSTEP_RETURN_IF_ERROR(check_device(device));
  const Served served = serve(device);
  LOCKSTEP_RETURN_IF_ERROR(captures_.allow("allocating memory"));
  return memory_.allocate(device, bytes, kind);
}

Status HostBackend::free(void* memory) {
  const Allocation place = memory_.locate(memory);
  const int device = place.space == MemorySpace::device ? place.device : selected_device();
  return give_back(device, [=, this] { return memory_.free(memory); });
}

Status HostBackend::give_back(int device, const std::function<Status()>& free) {
  return HeldStreams::of(device).when_none([=, this]() -> Status {
    Served served = serve(device);
    LOCKSTEP_RETURN_IF_ERROR(captures_.allow("freeing memory"));
    block(device, served);
    return free();
  });
}

Result<void*> HostBackend::allocate_pinned(std::size_t bytes) {
  const Served served = serve(some_device());
  LOCKSTEP_RETURN_IF_ERROR(captures_.allow("allocating memory"));
  return memory_.allocate_pinned(bytes);
}

Status HostBackend::free_pinned(void* memory) {
  return give_back(some_device(), [=, this] { return memory_.free_pinned(memory); });
}

Result<void*> HostBackend::register_host(void* memory, std::size_t bytes) {
  const Served served = serve(some_device());
  return memory_.register_host(memory, bytes);
}

Status HostBackend::unregister_host(void* memory) {
  const int device = some_device();
  Served served = serve(device);
  block(device, served);
  return memory_.unregister_host(memory);
}

Result<Allocation> HostBackend::locate(const void* pointer) {
  const Served served = queue_at(selected_device());
  return memory_.locate(pointer);
}

Result<MemoryExport> HostBackend::export_memory(const void* memory) {
  const Served served = serve();
  return memory_.export_memory(memory);
}

Result<void*> HostBackend::import_memory(const MemoryExport& memory) {
  const Served served = serve();
  return memory_.import_memory(selected_device(), memory);
}

Status HostBackend::close_imported(void* base) {
  Served served = serve();
  block(selected_device(), served);
  return memory_.close_imported(base);
}

// Streams and events.

Result<DeviceStream> HostBackend::create_stream(Priority) {
  const Served served = serve();
  auto stream = std::make_shared<HostStream>(selected_device());
  const std::lock_guard lock(mutex_);
  const DeviceStream handle = stream.get();
  streams_.emplace(handle, std::move(stream));
  return handle;
}

Status HostBackend::destroy_stream(DeviceStream handle) {
  const Served served = serve();
  const std::lock_guard lock(mutex_);
  std::erase_if(destroyed_streams_, [](const auto& stream) { return stream->idle(); });
  const auto found = streams_.find(handle);
  if (found == streams_.end())
    return Status(ErrorCode::invalid_argument,
                  "this stream was not made by create_stream(), or is destroyed");
  if (!found->second->idle()) destroyed_streams_.push_back(std::move(found->second));
  streams_.erase(found);
  return Status();
}

Result<std::shared_ptr<HostStream>> HostBackend::stream_of(DeviceStream handle) {
  const std::lock_guard lock(mutex_);
  if (handle == nullptr) {
    auto& stream = default_streams_[static_cast<std::size_t>(selected_device())];
    if (stream == nullptr) stream = std::make_shared<HostStream>(selected_device());
    return stream;
  }
  if (handle == kStreamPerThread) return stream_of_this_thread();
  const auto found = streams_.find(handle);
  if (found != streams_.end()) return found->second;
  return Status(ErrorCode::invalid_argument, "no such stream: it was destroyed, or is of another backend");
}

std::shared_ptr<HostStream> HostBackend::stream_of_this_thread() {
  DeviceStream& own = own_streams[static_cast<std::size_t>(selected_device())];
  if (const auto found = streams_.find(own); found != streams_.end()) return found->second;
  auto stream = std::make_shared<HostStream>(selected_device());
  own = stream.get();
  return streams_.emplace(own, std::move(stream)).first->second;
}

Result<std::uint64_t> HostBackend::stream_number(DeviceStream handle) {
  const Served served = serve();
  const Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok()) return stream.status();
  return stream.value()->number();
}

Result<std::shared_ptr<HostStream>> HostBackend::running_stream_of(DeviceStream handle, const char* what) {
  Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok() || !stream.value()->recording()) return stream;
  return Status(ErrorCode::invalid_argument,
                std::string(what) + " is not possible while the stream is being captured in a graph");
}

Status HostBackend::synchronize(DeviceStream handle) {
  Served served = serve();
  LOCKSTEP_RETURN_IF_ERROR(captures_.allow("waiting for a stream"));
  Result<std::shared_ptr<HostStream>> stream = running_stream_of(handle, "waiting for it");
  if (!stream.ok()) return stream.status();
  served.unlock();
  stream.value()->synchronize();
  return Status();
}

Result<bool> HostBackend::idle(DeviceStream handle) {
  const Served served = serve();
  LOCKSTEP_RETURN_IF_ERROR(captures_.allow("asking for the state of a stream"));
  Result<std::shared_ptr<HostStream>> stream = running_stream_of(handle, "asking for its state");
  if (!stream.ok()) return stream.status();
  return stream.value()->idle();
}

// Events.

Result<DeviceEvent> HostBackend::create_event() {
  const Served served = serve();
  auto event = std::make_shared<HostEvent>();
  const std::lock_guard lock(mutex_);
  const DeviceEvent handle = event.get();
  events_.emplace(handle, std::move(event));
  return handle;
}

Status HostBackend::destroy_event(DeviceEvent handle) {
  const Served served = serve();
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
  const Served served = serve();
  Result<std::shared_ptr<HostEvent>> event = event_of(handle);
  if (!event.ok()) return event.status();
  Result<std::shared_ptr<HostStream>> stream = running_stream_of(stream_handle, "recording an event");
  if (!stream.ok()) return stream.status();
  event.value()->record(*stream.value());
  return Status();
}

Result<bool> HostBackend::query(DeviceEvent handle) {
  const Served served = serve();
  LOCKSTEP_RETURN_IF_ERROR(captures_.allow("asking for the state of an event"));
  Result<std::shared_ptr<HostEvent>> event = event_of(handle);
  if (!event.ok()) return event.status();
  const std::shared_ptr<Milestone> last = event.value()->last();
  return last == nullptr || last->reached();
}

Status HostBackend::synchronize_event(DeviceEvent handle) {
  Served served = serve();
  LOCKSTEP_RETURN_IF_ERROR(captures_.allow("waiting for an event"));
  Result<std::shared_ptr<HostEvent>> event = event_of(handle);
  if (!event.ok()) return event.status();
  served.unlock();
  if (const std::shared_ptr<Milestone> last = event.value()->last()) last->wait();
  return Status();
}

Result<double> HostBackend::elapsed_us(DeviceEvent start, DeviceEvent end) {
  const Served served = serve();
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
  const Served served = serve();
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
  const Served served = serve();
  return enqueue_served(handle, std::move(task)).status();
}

Result<std::shared_ptr<HostStream>> HostBackend::enqueue_served(DeviceStream handle, HostStream::Task task) {
  Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok()) return stream.status();
  if (const int own = stream.value()->device(), here = selected_device(); own != here) {
    const std::string wanted = "device " + std::to_string(here);
    return Status(ErrorCode::invalid_argument, "the stream belongs to device " + std::to_string(own) +
                                                   ", but this call works on " + wanted + ": select " +
                                                   wanted + " before its streams are made");
  }
  stream.value()->enqueue(std::move(task));
  return stream;
}

Status HostBackend::copy(void* destination, const void* source, std::size_t bytes, DeviceStream stream) {
  const auto is_pageable = [this](const void* pointer) {
    return memory_.locate(pointer).space == MemorySpace::unregistered;
  };
  Served served = serve();
  const auto used = enqueue_served(stream, [=] { std::memcpy(destination, source, bytes); });
  if (!used.ok()) return used.status();
  const bool blocks = is_pageable(destination) || is_pageable(source);
  if (blocks && !used.value()->recording()) block(selected_device(), served, used.value());
  return Status();
}

}  // namespace lockstep::internal
