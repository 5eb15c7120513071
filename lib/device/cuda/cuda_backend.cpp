#include "lib/device/cuda/cuda_backend.hpp"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "lib/device/cuda/cuda_devices.hpp"
#include "lib/device/cuda/cuda_memory.hpp"
#include "lib/device/cuda/cuda_streams.hpp"
#include "lib/device/held_streams.hpp"
#include "lib/reduce/cuda/cuda_errors.hpp"
#include "lib/reduce/cuda/kernels.hpp"

namespace lockstep::internal {
namespace {

class CudaBackend final : public CudaStreams {
 public:
  CudaBackend(const CudaDriver& driver, int devices)
      : CudaStreams(driver), memory_(driver_), known_(driver_, devices) {}

  const char* name() const noexcept override { return "cuda"; }

  Result<int> device_count() override { return known_.count(); }

  Result<DeviceIdentity> identify(int device) override { return known_.identify(device); }

  Result<int> selected() override {
    int device = 0;
    LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaGetDevice(&device), "asking for the selected device"));
    return device;
  }

  Status select(int device) override {
    return context_status(cuda_status(::cudaSetDevice(device), "selecting device " + std::to_string(device)));
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
    LOCKSTEP_RETURN_IF_ERROR(ready_device().status());
    return known_.load_copies(device);
  }

  bool loads_kernels_late() override {
    CUmoduleLoadingMode mode{};
    return driver_.loading_mode(&mode) == CUDA_SUCCESS && mode == CU_MODULE_LAZY_LOADING;
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

  Status reduce(const ReduceJob& job, DeviceStream stream) override {
    const bool copies = job.sources.size() == 1 && job.destinations.size() == 1 && job.factors.empty() &&
                        job.permit == nullptr &&
                        (job.op != ReduceOp::avg || job.divisor == 0 || job.divisor == 1);
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
