#include "lib/device/cuda/cuda_streams.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "lib/reduce/cuda/cuda_errors.hpp"

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

}  // namespace

Result<DeviceStream> CudaStreams::create_stream(Priority priority) {
  int least = 0, greatest = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      cuda_status(::cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities of streams"));
  cudaStream_t stream = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(
      cuda_status(::cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                 priority == Priority::high ? greatest : least),
                  "creating a stream"));
  return DeviceStream{stream};
}

Status CudaStreams::destroy_stream(DeviceStream stream) {
  return cuda_status(::cudaStreamDestroy(native_stream(stream)), "destroying a stream");
}

Status CudaStreams::synchronize(DeviceStream stream) {
  return cuda_status(::cudaStreamSynchronize(native_stream(stream)), "waiting for a stream");
}

Result<bool> CudaStreams::idle(DeviceStream stream) {
  return readiness(::cudaStreamQuery(native_stream(stream)), "asking for the state of a stream");
}

Result<std::uint64_t> CudaStreams::stream_number(DeviceStream stream) {
  if (stream == kStreamPerThread) return number_of_own_stream();
  unsigned long long number = 0;
  LOCKSTEP_RETURN_IF_ERROR(driver_status(driver_, driver_.stream_id(static_cast<CUstream>(stream), &number),
                                         "asking which stream it is"));
  return std::uint64_t{number};
}

Result<bool> CudaStreams::capturing(DeviceStream stream) {
  cudaStreamCaptureStatus status{};
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaStreamIsCapturing(native_stream(stream), &status),
                                       "asking whether a stream is being captured"));
  return status != cudaStreamCaptureStatusNone;
}

Status CudaStreams::begin_capture(DeviceStream stream, CaptureScope scope) {
  const cudaStreamCaptureMode mode =
      scope == CaptureScope::process ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeThreadLocal;
  return cuda_status(::cudaStreamBeginCapture(native_stream(stream), mode), "capturing a stream in a graph");
}

/// The driver needs no context for it; the runtime might make one.
bool CudaStreams::heed_captures(bool heeds) noexcept {
  CUstreamCaptureMode mode = heeds ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  if (driver_.exchange_capture_mode(&mode) != CUDA_SUCCESS) return true;
  // A thread that its program has made laxer stays so.
  if (mode == CU_STREAM_CAPTURE_MODE_RELAXED) static_cast<void>(driver_.exchange_capture_mode(&mode));
  return mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

Result<DeviceGraph> CudaStreams::end_capture(DeviceStream stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaStreamEndCapture(native_stream(stream), &graph),
                                       "ending the capture of a stream in a graph"));
  const cudaError_t error = ::cudaGraphInstantiate(&ready, graph, 0);
  static_cast<void>(::cudaGraphDestroy(graph));
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(error, "making a graph ready to run"));
  // Now, and not with its first replay, beside which kernels of this process may wait already.
  const cudaError_t sent = ::cudaGraphUpload(ready, native_stream(stream));
  if (sent == cudaSuccess) return DeviceGraph{ready};
  static_cast<void>(::cudaGraphExecDestroy(ready));
  return cuda_status(sent, "bringing a graph to the device");
}

Status CudaStreams::replay(DeviceGraph graph, DeviceStream stream) {
  return cuda_status(::cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), native_stream(stream)),
                     "starting a graph");
}

Status CudaStreams::destroy_graph(DeviceGraph graph) {
  return cuda_status(::cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)), "destroying a graph");
}

Result<DeviceEvent> CudaStreams::create_event() {
  cudaEvent_t event = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(
      cuda_status(::cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event"));
  return DeviceEvent{event};
}

Result<DeviceEvent> CudaStreams::create_timed_event() {
  cudaEvent_t event = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaEventCreate(&event), "creating an event"));
  return DeviceEvent{event};
}

Result<double> CudaStreams::elapsed_us(DeviceEvent start, DeviceEvent end) {
  constexpr double kMicrosecondsPerMillisecond = 1e3;
  float milliseconds = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      cuda_status(::cudaEventElapsedTime(&milliseconds, native_event(start), native_event(end)),
                  "asking for the time between two events"));
  return kMicrosecondsPerMillisecond * static_cast<double>(milliseconds);
}

Status CudaStreams::destroy_event(DeviceEvent event) {
  return cuda_status(::cudaEventDestroy(native_event(event)), "destroying an event");
}

Status CudaStreams::record(DeviceEvent event, DeviceStream stream) {
  return cuda_status(::cudaEventRecord(native_event(event), native_stream(stream)), "recording an event");
}

Result<bool> CudaStreams::query(DeviceEvent event) {
  return readiness(::cudaEventQuery(native_event(event)), "asking for the state of an event");
}

Status CudaStreams::synchronize_event(DeviceEvent event) {
  return cuda_status(::cudaEventSynchronize(native_event(event)), "waiting for an event");
}

Status CudaStreams::wait_event(DeviceStream stream, DeviceEvent event) {
  return cuda_status(::cudaStreamWaitEvent(native_stream(stream), native_event(event), 0),
                     "letting a stream wait for an event");
}

Status CudaStreams::copy(void* destination, const void* source, std::size_t bytes, DeviceStream stream) {
  return cuda_status(::cudaMemcpyAsync(destination, source, bytes, cudaMemcpyDefault, native_stream(stream)),
                     "copying");
}

Status CudaStreams::fill(void* destination, std::uint8_t value, std::size_t bytes, DeviceStream stream) {
  return cuda_status(::cudaMemsetAsync(destination, value, bytes, native_stream(stream)), "filling memory");
}

Status CudaStreams::operate(std::span<const WordOperation> operations, DeviceStream stream) {
  CUstreamBatchMemOpParams batch[kBatch];
  while (!operations.empty()) {
    const std::size_t count = std::min(operations.size(), kBatch);
    std::transform(operations.begin(), operations.begin() + static_cast<std::ptrdiff_t>(count), batch,
                   native_operation);
    LOCKSTEP_RETURN_IF_ERROR(driver_status(
        driver_, driver_.stream_batch(static_cast<CUstream>(stream), static_cast<unsigned>(count), batch, 0),
        "writing and awaiting words on a stream"));
    operations = operations.subspan(count);
  }
  return Status();
}

Status CudaStreams::launch(const KernelLaunch& kernel, DeviceStream stream) {
  if (kernel.on_cuda == nullptr) {
    return Status(ErrorCode::not_supported, std::string("kernel ") + kernel.name + " was not built for CUDA");
  }
  return cuda_status(static_cast<cudaError_t>(kernel.on_cuda(kernel.arguments, stream)),
                     std::string("starting kernel ") + kernel.name);
}

}  // namespace lockstep::internal
