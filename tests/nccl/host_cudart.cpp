// The part of the CUDA runtime that programs over NCCL use, on lockstep's devices: with the host backend such
// programs run, unchanged, on a machine without a GPU. Kernels of their own do not: launching one is an
// error.
#include <cuda_runtime_api.h>

#include <cstring>
#include <mutex>
#include <set>

#include "lockstep/device_runtime.hpp"
#include "lockstep/error.hpp"

namespace device = lockstep::device;

namespace {

thread_local cudaError_t t_last = cudaSuccess;

template <typename Body>
cudaError_t guarded(Body body) noexcept {
  try {
    body();
    return cudaSuccess;
  } catch (const lockstep::Error& error) {
    t_last = error.code() == lockstep::ErrorCode::not_supported ? cudaErrorNoDevice : cudaErrorInvalidValue;
    return t_last;
  }
}

cudaError_t refuse() { return t_last = cudaErrorNotSupported; }

// The streams that live, for those who wait for a whole device.
struct Streams {
  std::mutex mutex;
  std::set<lockstep::Stream> alive{nullptr};
};
Streams& streams() {
  static auto& instance = *new Streams;
  return instance;
}

}  // namespace

extern "C" {
#pragma GCC visibility push(default)

// ---- devices

cudaError_t cudaGetDeviceCount(int* count) {
  return guarded([&] { *count = device::count(); });
}
cudaError_t cudaSetDevice(int chosen) {
  return guarded([&] { device::select(chosen); });
}
cudaError_t cudaGetDevice(int* selected) {
  return guarded([&] { *selected = device::selected(); });
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int number) {
  return guarded([&] {
    const device::Properties facts = device::properties(number);
    std::memset(properties, 0, sizeof *properties);
    std::strncpy(properties->name, facts.name.c_str(), sizeof properties->name - 1);
    properties->totalGlobalMem = facts.memory_bytes;
    properties->major = 9;
  });
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return guarded([&] { *free = *total = device::properties(device::selected()).memory_bytes; });
}
cudaError_t cudaDeviceSynchronize() {
  return guarded([] {
    std::set<lockstep::Stream> alive;
    {
      const std::lock_guard lock(streams().mutex);
      alive = streams().alive;
    }
    for (const lockstep::Stream stream : alive) device::synchronize(stream);
  });
}
cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

// ---- memory

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return guarded([&] { *memory = lockstep::allocate_device(bytes, device::selected()); });
}
cudaError_t cudaFree(void* memory) {
  return guarded([&] { lockstep::free_device(memory); });
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return guarded([&] { *memory = device::allocate_pinned(bytes); });
}
cudaError_t cudaFreeHost(void* memory) {
  return guarded([&] { device::free_pinned(memory); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return guarded([&] { device::copy(to, from, bytes, stream); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return guarded([&] {
    device::copy(to, from, bytes, nullptr);
    device::synchronize(nullptr);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return guarded([&] { device::fill(to, static_cast<std::uint8_t>(value), bytes, stream); });
}
cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return guarded([&] {
    device::fill(to, static_cast<std::uint8_t>(value), bytes, nullptr);
    device::synchronize(nullptr);
  });
}

// ---- streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return guarded([&] {
    lockstep::Stream const made = device::create_stream();
    *stream = static_cast<cudaStream_t>(made);
    const std::lock_guard lock(streams().mutex);
    streams().alive.insert(made);
  });
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return guarded([&] {
    device::synchronize(stream);
    const std::lock_guard lock(streams().mutex);
    streams().alive.erase(stream);
    device::destroy_stream(stream);
  });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return guarded([&] { device::synchronize(stream); });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  bool idle = false;
  const cudaError_t error = guarded([&] { idle = device::is_idle(stream); });
  return error != cudaSuccess || idle ? error : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return guarded([&] { device::wait(stream, event); });
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return guarded([&] { *event = static_cast<cudaEvent_t>(device::create_timed_event()); });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return guarded([&] { device::destroy_event(event); });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return guarded([&] { device::record(event, stream); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return guarded([&] { *milliseconds = static_cast<float>(device::elapsed_us(start, end) / 1e3); });
}

// ---- graphs: one is made ready as it is captured, and lives until its executable form is destroyed

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return guarded([&] { device::begin_capture(stream); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return guarded([&] { *graph = static_cast<cudaGraph_t>(device::end_capture(stream)); });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  *ready = reinterpret_cast<cudaGraphExec_t>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return guarded([&] { device::replay(graph, stream); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return guarded([&] { device::destroy_graph(graph); });
}
cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }

// ---- errors

cudaError_t cudaGetLastError() {
  const cudaError_t last = t_last;
  t_last = cudaSuccess;
  return last;
}
cudaError_t cudaPeekAtLastError() { return t_last; }
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorNotSupported:
      return "operation not supported by the host's CUDA runtime for tests";
    case cudaErrorNotReady:
      return "device not ready";
    default:
      return "invalid argument";
  }
}

// ---- what nvcc's objects call at their start

void** __cudaRegisterFatBinary(void*) {
  static void* handle;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void*) {
  *kernel = nullptr;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return refuse(); }
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) { return refuse(); }

#pragma GCC visibility pop
}
