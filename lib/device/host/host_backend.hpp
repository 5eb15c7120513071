// The host backend: executes streams on threads over memory of this host. For tests, and for programs
// developed on machines without a GPU (LOCKSTEP_DEVICE_BACKEND=host). It keeps CUDA's rules (which device a
// stream belongs to, what can be exported and how, what a wait for an event binds to, who blocks whom), so
// that what runs on it is right there too. Unlike CUDA's, its default streams do not synchronise with others.
//
// Who blocks whom: a device serves one call at a time. Most return at once, but a copy from or to memory that
// is not pinned returns when it is done, and what gives memory back returns when all streams of the device
// have run; so long every other call for the device waits. Only synchronize() and synchronize_event() let
// others in. CUDA's driver is allowed to do all that, and does much of it. Where it would hang for ever, here
// it ends after a while, with a word on standard error.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "lib/device/backend.hpp"
#include "lib/device/host/host_captures.hpp"
#include "lib/device/host/host_memory.hpp"
#include "lib/device/host/host_stream.hpp"

namespace lockstep::internal {

/// What was recorded from a stream.
struct HostGraph {
  std::vector<HostStream::Task> tasks;
};

class HostBackend final : public Backend {
 public:
  /// As many as ranks of a usual machine, so that each can have a device of its own. All are the same memory.
  static constexpr int kDevices = 8;

  ~HostBackend() override;
  /// How often a call that blocked its device kept others waiting beyond all patience: what it waited for may
  /// have needed them. For tests.
  static int hangs();
  /// Whether a thread of this process has worked on `device`, which on CUDA takes hundreds of MiB of it. For
  /// tests.
  bool has_context(int device) { return counter(device).has_context; }

  const char* name() const noexcept override { return "host"; }
  Result<int> device_count() override { return kDevices; }
  Result<DeviceIdentity> identify(int device) override;
  Result<int> selected() override;
  Status select(int device) override;
  Result<ThreadDevice> enter(int device) override;
  void leave(ThreadDevice before) noexcept override;
  Status prepare(int device) override { return identify(device).status(); }
  Result<bool> can_access(int device, int peer) override;
  Status enable_peer(int device, int peer) override;

  Result<void*> allocate(int device, std::size_t bytes, MemoryKind kind) override;
  /// Whole pages each; for tests.
  Result<void*> allocate_pieces(int device, std::size_t piece_bytes, int pieces) {
    return memory_.allocate_pieces(device, piece_bytes, pieces);
  }
  Status free(void* memory) override;
  Result<void*> allocate_pinned(std::size_t bytes) override;
  Status free_pinned(void* memory) override;
  Result<void*> register_host(void* memory, std::size_t bytes) override;
  Status unregister_host(void* memory) override;
  Result<Allocation> locate(const void* pointer) override;

  Result<MemoryExport> export_memory(const void* memory) override;
  Result<void*> import_memory(const MemoryExport& memory) override;
  Status close_imported(void* base) override;

  Result<DeviceStream> create_stream(Priority priority) override;
  Status destroy_stream(DeviceStream stream) override;
  Status synchronize(DeviceStream stream) override;
  Result<bool> idle(DeviceStream stream) override;
  Result<std::uint64_t> stream_number(DeviceStream stream) override;
  Result<bool> capturing(DeviceStream stream) override;
  Status begin_capture(DeviceStream stream, CaptureScope scope) override;
  Result<DeviceGraph> end_capture(DeviceStream stream) override;
  Status replay(DeviceGraph graph, DeviceStream stream) override;
  Status destroy_graph(DeviceGraph graph) override;
  bool heed_captures(bool heeds) noexcept override { return HostCaptures::heed(heeds); }

  Result<DeviceEvent> create_event() override;
  Result<DeviceEvent> create_timed_event() override { return create_event(); }
  Status destroy_event(DeviceEvent event) override;
  Status record(DeviceEvent event, DeviceStream stream) override;
  Result<bool> query(DeviceEvent event) override;
  Status synchronize_event(DeviceEvent event) override;
  Result<double> elapsed_us(DeviceEvent start, DeviceEvent end) override;
  Status wait_event(DeviceStream stream, DeviceEvent event) override;

  Status copy(void* destination, const void* source, std::size_t bytes, DeviceStream stream) override;
  Status fill(void* destination, std::uint8_t value, std::size_t bytes, DeviceStream stream) override;
  Status reduce(const ReduceJob& job, DeviceStream stream) override;
  Status convert(const ConvertJob& job, DeviceStream stream) override;
  Status quantise(const QuantiseJob& job, DeviceStream stream) override;
  Status dequantise(const DequantiseJob& job, DeviceStream stream) override;
  Status operate(std::span<const WordOperation> operations, DeviceStream stream) override;
  Status launch(const KernelLaunch& kernel, DeviceStream stream) override;

 private:
  /// Where a device serves its calls.
  struct Counter {
    std::mutex mutex;
    std::atomic<int> waiting{0};
    std::atomic<bool> has_context{false};
  };
  /// What a call has while it is served.
  using Served = std::unique_lock<std::mutex>;
  Counter& counter(int device) { return counters_[static_cast<std::size_t>(device)]; }
  /// The thread's, or one that is in use.
  int some_device();
  Served serve();
  Served serve(int device);
  /// For what does not work on a device, but is asked where its calls are served.
  Served queue_at(int device);
  std::vector<std::shared_ptr<HostStream>> streams_of(int device);
  /// Blocks the device until its streams have run what they have; `one`: that stream alone.
  void block(int device, Served& served, const std::shared_ptr<HostStream>& one = nullptr);
  /// Frees when nothing of the device runs, and no stream is held.
  Status give_back(int device, const std::function<Status()>& free);
  /// The stream behind a handle; an error for one that was not made here, or was destroyed.
  Result<std::shared_ptr<HostStream>> stream_of(DeviceStream handle);
  std::shared_ptr<HostStream> stream_of_this_thread();  ///< Under the lock.
  Result<std::shared_ptr<HostEvent>> event_of(DeviceEvent handle);
  /// The caller is served.
  Result<std::shared_ptr<HostStream>> enqueue_served(DeviceStream handle, HostStream::Task task);
  Status enqueue(DeviceStream handle, HostStream::Task task);
  /// The stream, unless it is being recorded, where `what` has no meaning.
  Result<std::shared_ptr<HostStream>> running_stream_of(DeviceStream handle, const char* what);

  std::array<Counter, kDevices> counters_;  ///< By device. Their locks are taken before the others.
  HostCaptures captures_;
  HostMemory memory_;
  std::mutex mutex_;
  std::map<DeviceStream, std::shared_ptr<HostStream>> streams_;
  /// With something still to run, for which who frees memory waits.
  std::vector<std::shared_ptr<HostStream>> destroyed_streams_;
  std::array<std::shared_ptr<HostStream>, kDevices> default_streams_;
  std::map<DeviceEvent, std::shared_ptr<HostEvent>> events_;
  std::map<DeviceGraph, std::shared_ptr<const HostGraph>> graphs_;
};

}  // namespace lockstep::internal
