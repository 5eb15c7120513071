#include "lib/device/cuda/cuda_backend.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lib/device/cuda/cuda_devices.hpp"
#include "lib/device/cuda/cuda_memory.hpp"
#include "lib/device/held_streams.hpp"
#include "lib/reduce/cuda/cuda_errors.hpp"
#include "lib/reduce/cuda/kernels.hpp"

namespace lockstep::internal {
namespace {

/// Operations that the driver takes in one batch: below 256.
constexpr std::size_t kBatch = 128;

cudaStream_t native_stream(DeviceStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t native_event(DeviceEvent event) { return static_cast<cudaEvent_t>(event); }

/// Turns "not ready" into false.
Result<bool> readiness(cudaError_t error, const char* what) {
  if (error == cudaErrorNotReady) {
    static_cast<void>(::cudaGetLastError());
    return false;
  }
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(error, what));
  return true;
}

/// Apart from all numbers that the driver gives to streams.
std::uint64_t number_of_own_stream() {
  constexpr std::uint64_t kOfThreads = std::uint64_t{1} << 63;
  static std::atomic<std::uint64_t> threads{0};
  thread_local const std::uint64_t number = kOfThreads + threads.fetch_add(1);
  return number;
}

CUstreamBatchMemOpParams native_operation(const WordOperation& operation) {
  CUstreamBatchMemOpParams native{};
  const auto address = reinterpret_cast<CUdeviceptr>(operation.where);
  if (operation.kind == WordOperation::Kind::write) {
    native.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    native.writeValue.address = address;
    native.writeValue.value = operation.value;
    native.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // After what the stream wrote before.
  } else {
    native.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    native.waitValue.address = address;
    native.waitValue.value = operation.value;
    native.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  }
  return native;
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaDriver& driver, int devices)
      : driver_(driver), memory_(driver_), known_(driver_, devices) {}

  const char* name() const noexcept override { return "cuda"; }

  Result<int> device_count() override { return known_.count(); }

  Result<DeviceIdentity> identify(int device) override { return known_.identify(device); }

  Result<int> selected() override {
    int device = 0;
    LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaGetDevice(&device), "asking for the selected device"));
    return device;
  }

  Status select(int device) override {
    return cuda_status(::cudaSetDevice(device), "selecting device " + std::to_string(device));
  }

  /// By contexts, and not by cudaSetDevice: the runtime goes by the context that is current, and only so can
  /// a thread be left without one.
  Result<ThreadDevice> enter(int device) override {
    CUcontext before = nullptr;
    LOCKSTEP_RETURN_IF_ERROR(
        driver_status(driver_, driver_.current_context(&before), "asking for the selected device"));
    if (before != nullptr) {  // Of this device it may be another than the runtime's, and stays.
      const Result<int> device_before = selected();
      if (!device_before.ok()) return device_before.status();
      if (device_before.value() == device) return reinterpret_cast<ThreadDevice>(before);
    }
    const Result<CUcontext> context = known_.context(device);
    if (!context.ok()) return context.status();
    LOCKSTEP_RETURN_IF_ERROR(driver_status(driver_, driver_.set_context(context.value()),
                                           "selecting device " + std::to_string(device)));
    return reinterpret_cast<ThreadDevice>(before);
  }

  void leave(ThreadDevice before) noexcept override {
    static_cast<void>(driver_.set_context(reinterpret_cast<CUcontext>(before)));
  }

  Status prepare(int device) override {
    const DeviceScope scope(*this, device);
    LOCKSTEP_RETURN_IF_ERROR(scope.status());
    return ready_device().status();
  }

  Result<bool> can_access(int device, int peer) override {
    int can = 0;
    if (device == peer) return true;
    LOCKSTEP_RETURN_IF_ERROR(
        cuda_status(::cudaDeviceCanAccessPeer(&can, device, peer), "asking for access between two devices"));
    return can != 0;
  }

  Status enable_peer(int device, int peer) override {
    if (device == peer) return Status();
    const DeviceScope scope(*this, device);
    LOCKSTEP_RETURN_IF_ERROR(scope.status());
    const cudaError_t error = ::cudaDeviceEnablePeerAccess(peer, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      static_cast<void>(::cudaGetLastError());
    } else {
      LOCKSTEP_RETURN_IF_ERROR(cuda_status(error, "access of device " + std::to_string(device) +
                                                      " to the memory of device " + std::to_string(peer)));
    }
    return memory_.let_reach(device, peer);
  }

  Result<void*> allocate(int device, std::size_t bytes, MemoryKind kind) override {
    const DeviceScope scope(*this, device);
    LOCKSTEP_RETURN_IF_ERROR(scope.status());
    return memory_.allocate(device, bytes, kind);
  }

  Status free(void* memory) override {
    const Result<Allocation> place = locate(memory);
    const bool is_known = place.ok() && place.value().device >= 0;
    const Result<int> device = is_known ? place.value().device : selected();
    if (!device.ok()) return device.status();
    return HeldStreams::of(device.value()).when_none([=, this, on = device.value()]() -> Status {
      const DeviceScope scope(*this, on);  // The thread may be any, and have no device.
      LOCKSTEP_RETURN_IF_ERROR(scope.status());
      return memory_.free(memory);
    });
  }

  Result<void*> allocate_pinned(std::size_t bytes) override {
    const AnyContext any(driver_, known_);
    void* memory = nullptr;
    LOCKSTEP_RETURN_IF_ERROR(
        cuda_status(::cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                    std::to_string(bytes) + " bytes of pinned memory"));
    std::memset(memory, 0, bytes);
    return memory;
  }

  Status free_pinned(void* memory) override {
    const AnyContext any(driver_, known_);
    const Result<int> device = selected();
    if (!device.ok()) return device.status();
    return HeldStreams::of(device.value()).when_none([=, this, on = device.value()]() -> Status {
      const DeviceScope scope(*this, on);
      LOCKSTEP_RETURN_IF_ERROR(scope.status());
      return cuda_status(::cudaFreeHost(memory), "freeing pinned memory");
    });
  }

  Result<void*> register_host(void* memory, std::size_t bytes) override {
    const AnyContext any(driver_, known_);
    LOCKSTEP_RETURN_IF_ERROR(
        cuda_status(::cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
                    "pinning " + std::to_string(bytes) + " bytes of host memory"));
    void* address = nullptr;
    LOCKSTEP_RETURN_IF_ERROR(
        cuda_status(::cudaHostGetDevicePointer(&address, memory, 0), "mapping host memory"));
    return address;
  }

  Status unregister_host(void* memory) override {
    const AnyContext any(driver_, known_);
    return cuda_status(::cudaHostUnregister(memory), "unpinning host memory");
  }

  Result<Allocation> locate(const void* pointer) override {
    const AnyContext asking(driver_, known_);
    return asking.exists() ? memory_.locate(pointer) : Allocation();
  }

  Result<MemoryExport> export_memory(const void* memory) override {
    const AnyContext asking(driver_, known_);
    const Result<Allocation> place = locate(memory);
    if (!place.ok()) return place.status();
    if (place.value().device < 0) return memory_.export_memory(memory);  // Which says why it cannot be.
    const DeviceScope scope(*this, place.value().device);
    LOCKSTEP_RETURN_IF_ERROR(scope.status());
    return memory_.export_memory(memory);
  }

  Result<void*> import_memory(const MemoryExport& memory) override {
    const Result<int> device = selected();
    if (!device.ok()) return device.status();
    return memory_.import_memory(device.value(), memory);
  }

  Status close_imported(void* base) override { return memory_.close_imported(base); }

  Result<DeviceStream> create_stream(Priority priority) override {
    int least = 0, greatest = 0;
    LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaDeviceGetStreamPriorityRange(&least, &greatest),
                                         "asking for priorities of streams"));
    cudaStream_t stream = nullptr;
    LOCKSTEP_RETURN_IF_ERROR(
        cuda_status(::cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                   priority == Priority::high ? greatest : least),
                    "creating a stream"));
    return DeviceStream{stream};
  }

  Status destroy_stream(DeviceStream stream) override {
    return cuda_status(::cudaStreamDestroy(native_stream(stream)), "destroying a stream");
  }

  Status synchronize(DeviceStream stream) override {
    return cuda_status(::cudaStreamSynchronize(native_stream(stream)), "waiting for a stream");
  }

  Result<bool> idle(DeviceStream stream) override {
    return readiness(::cudaStreamQuery(native_stream(stream)), "asking for the state of a stream");
  }

  Result<std::uint64_t> stream_number(DeviceStream stream) override {
    if (stream == kStreamPerThread) return number_of_own_stream();
    unsigned long long number = 0;
    LOCKSTEP_RETURN_IF_ERROR(driver_status(driver_, driver_.stream_id(static_cast<CUstream>(stream), &number),
                                           "asking which stream it is"));
    return std::uint64_t{number};
  }

  Result<bool> capturing(DeviceStream stream) override {
    cudaStreamCaptureStatus status{};
    LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaStreamIsCapturing(native_stream(stream), &status),
                                         "asking whether a stream is being captured"));
    return status != cudaStreamCaptureStatusNone;
  }

  Status begin_capture(DeviceStream stream, CaptureScope scope) override {
    const cudaStreamCaptureMode mode =
        scope == CaptureScope::process ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeThreadLocal;
    return cuda_status(::cudaStreamBeginCapture(native_stream(stream), mode),
                       "capturing a stream in a graph");
  }

  /// The driver needs no context for it; the runtime might make one.
  bool heed_captures(bool heeds) noexcept override {
    CUstreamCaptureMode mode = heeds ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    if (driver_.exchange_capture_mode(&mode) != CUDA_SUCCESS) return true;
    // A thread that its program has made laxer stays so.
    if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) static_cast<void>(driver_.exchange_capture_mode(&mode));
    return mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
  }

  Result<DeviceGraph> end_capture(DeviceStream stream) override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaStreamEndCapture(native_stream(stream), &graph),
                                         "ending the capture of a stream in a graph"));
    const cudaError_t error = ::cudaGraphInstantiate(&ready, graph, 0);
    static_cast<void>(::cudaGraphDestroy(graph));
    LOCKSTEP_RETURN_IF_ERROR(cuda_status(error, "making a graph ready to run"));
    return DeviceGraph{ready};
  }

  Status replay(DeviceGraph graph, DeviceStream stream) override {
    return cuda_status(::cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), native_stream(stream)),
                       "starting a graph");
  }

  Status destroy_graph(DeviceGraph graph) override {
    return cuda_status(::cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)), "destroying a graph");
  }

  Result<DeviceEvent> create_event() override {
    cudaEvent_t event = nullptr;
    LOCKSTEP_RETURN_IF_ERROR(
        cuda_status(::cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event"));
    return DeviceEvent{event};
  }

  Result<DeviceEvent> create_timed_event() override {
    cudaEvent_t event = nullptr;
    LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaEventCreate(&event), "creating an event"));
    return DeviceEvent{event};
  }

  Result<double> elapsed_us(DeviceEvent start, DeviceEvent end) override {
    constexpr double kMicrosecondsPerMillisecond = 1e3;
    float milliseconds = 0;
    LOCKSTEP_RETURN_IF_ERROR(
        cuda_status(::cudaEventElapsedTime(&milliseconds, native_event(start), native_event(end)),
                    "asking for the time between two events"));
    return kMicrosecondsPerMillisecond * static_cast<double>(milliseconds);
  }

  Status destroy_event(DeviceEvent event) override {
    return cuda_status(::cudaEventDestroy(native_event(event)), "destroying an event");
  }

  Status record(DeviceEvent event, DeviceStream stream) override {
    return cuda_status(::cudaEventRecord(native_event(event), native_stream(stream)), "recording an event");
  }

  Result<bool> query(DeviceEvent event) override {
    return readiness(::cudaEventQuery(native_event(event)), "asking for the state of an event");
  }

  Status synchronize_event(DeviceEvent event) override {
    return cuda_status(::cudaEventSynchronize(native_event(event)), "waiting for an event");
  }

  Status wait_event(DeviceStream stream, DeviceEvent event) override {
    return cuda_status(::cudaStreamWaitEvent(native_stream(stream), native_event(event), 0),
                       "letting a stream wait for an event");
  }

  Status copy(void* destination, const void* source, std::size_t bytes, DeviceStream stream) override {
    return cuda_status(
        ::cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, native_stream(stream)), "copying");
  }

  Status fill(void* destination, std::uint8_t value, std::size_t bytes, DeviceStream stream) override {
    return cuda_status(::cudaMemsetAsync(destination, value, bytes, native_stream(stream)), "filling memory");
  }

  Status reduce(const ReduceJob& job, DeviceStream stream) override {
    const bool copies = job.sources.size() == 1 && job.destinations.size() == 1 && job.factors.empty() &&
                        job.permit == nullptr && (job.op != ReduceOp::avg || job.divisor <= 1);
    if (copies) {
      LOCKSTEP_RETURN_IF_ERROR(check_job(job));
      if (job.sources[0] == job.destinations[0]) return Status();
      return copy(job.destinations[0], job.sources[0], job.count * size_of(job.type), stream);
    }
    return start_job(job, stream);
  }
  Status convert(const ConvertJob& job, DeviceStream stream) override { return start_job(job, stream); }
  Status quantise(const QuantiseJob& job, DeviceStream stream) override { return start_job(job, stream); }
  Status dequantise(const DequantiseJob& job, DeviceStream stream) override { return start_job(job, stream); }

  Status operate(std::span<const WordOperation> operations, DeviceStream stream) override {
    CUstreamBatchMemOpParams batch[kBatch];
    while (!operations.empty()) {
      const std::size_t count = std::min(operations.size(), kBatch);
      std::transform(operations.begin(), operations.begin() + static_cast<std::ptrdiff_t>(count), batch,
                     native_operation);
      LOCKSTEP_RETURN_IF_ERROR(driver_status(
          driver_,
          driver_.stream_batch(static_cast<CUstream>(stream), static_cast<unsigned>(count), batch, 0),
          "writing and awaiting words on a stream"));
      operations = operations.subspan(count);
    }
    return Status();
  }

  Status launch(const KernelLaunch& kernel, DeviceStream stream) override {
    if (kernel.on_cuda == nullptr) {
      return Status(ErrorCode::not_supported,
                    std::string("kernel ") + kernel.name + " was not built for CUDA");
    }
    return cuda_status(static_cast<cudaError_t>(kernel.on_cuda(kernel.arguments, stream)),
                       std::string("starting kernel ") + kernel.name);
  }

 private:
  /// Of the selected device.
  Result<CudaDevices::Ready> ready_device() {
    const Result<int> device = selected();
    if (!device.ok()) return device.status();
    return known_.make_ready(device.value());
  }

  template <typename Job>
  Status start_job(const Job& job, DeviceStream stream) {
    LOCKSTEP_RETURN_IF_ERROR(check_job(job));
    const auto ready = ready_device();
    if (!ready.ok()) return ready.status();
    return cuda::start(job, {stream, ready.value().multiprocessors, *ready.value().residency});
  }

  const CudaDriver driver_;
  CudaMemory memory_;
  CudaDevices known_;
};

}  // namespace

Result<Backend*> open_cuda_backend() {
  const Result<CudaDriver> driver = load_cuda_driver();
  if (!driver.ok()) return driver.status();
  int devices = 0;
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaGetDeviceCount(&devices), "counting devices"));
  return new CudaBackend(driver.value(), devices);
}

}  // namespace lockstep::internal
