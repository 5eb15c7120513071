// A backend that does what another does, and lists what was enqueued.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lib/device/backend.hpp"

namespace lockstep::internal::testing {

struct Enqueued {
  std::string what;  ///< "copy", "fill", "reduce", "convert", "quantise", "dequantise", "write", "wait",
                     ///< "record", "wait_event", or the name of a kernel.
  DeviceStream stream = nullptr;
  std::vector<const void*> sources{};
  std::vector<void*> destinations{};
  std::size_t bytes = 0;  ///< Of one source.
  std::uint32_t value = 0;
  DeviceEvent event = nullptr;
};

class RecordingBackend final : public Backend {
 public:
  /// `takes_turns`: processes that share a device are told that their kernels do not run side by side.
  explicit RecordingBackend(Backend& real, bool takes_turns = false)
      : real_(real), takes_turns_(takes_turns) {}

  /// Called before what was listed is passed on, which it is not where this gives an error. Set it while
  /// nothing is enqueued.
  std::function<Status(const Enqueued&)> before;
  /// Called before memory is freed.
  std::function<void()> before_free;
  /// Whether threads get a device.
  std::atomic<bool> lets_enter{true};
  /// Whether devices reach one another's memory.
  std::atomic<bool> reaches{true};
  /// Whether kernels are loaded when they are first started.
  bool loads_late = false;
  /// Pairs that were told to.
  std::atomic<int> peers_enabled{0};
  /// Of all allocations, instead of their own.
  std::optional<std::uint64_t> generation;

  /// What was enqueued since the last call, in the order of the calls.
  std::vector<Enqueued> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(list_, {});
  }

  const char* name() const noexcept override { return real_.name(); }
  Result<int> device_count() override { return real_.device_count(); }
  Result<DeviceIdentity> identify(int device) override {
    auto identity = real_.identify(device);
    if (takes_turns_ && identity.ok()) identity.value().kernels_of_processes_overlap = false;
    return identity;
  }
  Result<int> selected() override { return real_.selected(); }
  Status select(int device) override { return real_.select(device); }
  Result<ThreadDevice> enter(int device) override {
    if (!lets_enter) return Status(ErrorCode::device_failed, "a fault of the test");
    return real_.enter(device);
  }
  void leave(ThreadDevice device) noexcept override { real_.leave(device); }
  Status prepare(int device) override { return real_.prepare(device); }
  bool loads_kernels_late() override { return loads_late; }
  Result<bool> can_access(int device, int peer) override {
    if (device != peer && !reaches) return false;
    return real_.can_access(device, peer);
  }
  Status enable_peer(int device, int peer) override {
    ++peers_enabled;
    return real_.enable_peer(device, peer);
  }
  Result<void*> allocate(int device, std::size_t bytes, MemoryKind kind) override {
    return real_.allocate(device, bytes, kind);
  }
  Status free(void* memory) override {
    if (before_free) before_free();
    return real_.free(memory);
  }
  Result<void*> allocate_pinned(std::size_t bytes) override { return real_.allocate_pinned(bytes); }
  Status free_pinned(void* memory) override { return real_.free_pinned(memory); }
  Result<void*> register_host(void* memory, std::size_t bytes) override {
    return real_.register_host(memory, bytes);
  }
  Status unregister_host(void* memory) override { return real_.unregister_host(memory); }
  Result<Allocation> locate(const void* pointer) override {
    Result<Allocation> found = real_.locate(pointer);
    if (found.ok() && generation) found.value().generation = *generation;
    return found;
  }
  Result<MemoryExport> export_memory(const void* memory) override { return real_.export_memory(memory); }
  Result<void*> import_memory(const MemoryExport& memory) override { return real_.import_memory(memory); }
  Status close_imported(void* base) override { return real_.close_imported(base); }
  Result<DeviceStream> create_stream(Priority priority) override { return real_.create_stream(priority); }
  Status destroy_stream(DeviceStream stream) override { return real_.destroy_stream(stream); }
  Status synchronize(DeviceStream stream) override { return real_.synchronize(stream); }
  Result<bool> idle(DeviceStream stream) override { return real_.idle(stream); }
  Result<std::uint64_t> stream_number(DeviceStream stream) override { return real_.stream_number(stream); }
  Result<bool> capturing(DeviceStream stream) override { return real_.capturing(stream); }
  Status begin_capture(DeviceStream stream, CaptureScope scope) override {
    return real_.begin_capture(stream, scope);
  }
  bool heed_captures(bool heeds) noexcept override { return real_.heed_captures(heeds); }
  Result<DeviceGraph> end_capture(DeviceStream stream) override { return real_.end_capture(stream); }
  Status replay(DeviceGraph graph, DeviceStream stream) override { return real_.replay(graph, stream); }
  Status destroy_graph(DeviceGraph graph) override { return real_.destroy_graph(graph); }
  Result<DeviceEvent> create_event() override { return real_.create_event(); }
  Result<DeviceEvent> create_timed_event() override { return real_.create_timed_event(); }
  Status destroy_event(DeviceEvent event) override { return real_.destroy_event(event); }
  Result<bool> query(DeviceEvent event) override { return real_.query(event); }
  Status synchronize_event(DeviceEvent event) override { return real_.synchronize_event(event); }
  Result<double> elapsed_us(DeviceEvent start, DeviceEvent end) override {
    return real_.elapsed_us(start, end);
  }

  Status record(DeviceEvent event, DeviceStream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(note({.what = "record", .stream = stream, .event = event}));
    return real_.record(event, stream);
  }
  Status wait_event(DeviceStream stream, DeviceEvent event) override {
    LOCKSTEP_RETURN_IF_ERROR(note({.what = "wait_event", .stream = stream, .event = event}));
    return real_.wait_event(stream, event);
  }
  Status copy(void* destination, const void* source, std::size_t bytes, DeviceStream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(note({"copy", stream, {source}, {destination}, bytes}));
    return real_.copy(destination, source, bytes, stream);
  }
  Status fill(void* destination, std::uint8_t value, std::size_t bytes, DeviceStream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(note({"fill", stream, {}, {destination}, bytes, value}));
    return real_.fill(destination, value, bytes, stream);
  }
  Status reduce(const ReduceJob& job, DeviceStream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(note({"reduce",
                                   stream,
                                   {job.sources.begin(), job.sources.end()},
                                   {job.destinations.begin(), job.destinations.end()},
                                   job.count * size_of(job.type)}));
    return real_.reduce(job, stream);
  }
  Status convert(const ConvertJob& job, DeviceStream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(
        note({"convert", stream, {job.input}, {job.output}, job.count * size_of(job.from)}));
    return real_.convert(job, stream);
  }
  Status quantise(const QuantiseJob& job, DeviceStream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(
        note({"quantise", stream, {job.input}, {job.scales, job.codes}, job.count * sizeof(float)}));
    return real_.quantise(job, stream);
  }
  Status dequantise(const DequantiseJob& job, DeviceStream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(note({"dequantise", stream, {job.scales, job.codes}, {job.output}, job.count}));
    return real_.dequantise(job, stream);
  }
  Status operate(std::span<const WordOperation> operations, DeviceStream stream) override {
    for (const WordOperation& one : operations) {
      const bool writes = one.kind == WordOperation::Kind::write;
      LOCKSTEP_RETURN_IF_ERROR(
          note({writes ? "write" : "wait", stream, {}, {one.where}, sizeof one.value, one.value}));
    }
    return real_.operate(operations, stream);
  }
  Status launch(const KernelLaunch& kernel, DeviceStream stream) override {
    LOCKSTEP_RETURN_IF_ERROR(note({.what = kernel.name, .stream = stream}));
    return real_.launch(kernel, stream);
  }

 private:
  Status note(const Enqueued& one) {
    {
      const std::lock_guard lock(mutex_);
      list_.push_back(one);
    }
    return before ? before(one) : Status();
  }

  Backend& real_;
  const bool takes_turns_;
  std::mutex mutex_;
  std::vector<Enqueued> list_;
};

}  // namespace lockstep::internal::testing
