#include "lib/device/cuda/cuda_devices.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <utility>

#include "lib/reduce/cuda/cuda_errors.hpp"

namespace lockstep::internal {
namespace {

/// On a stream of its own: the default one waits for others. The few bytes are kept: to free them may wait
/// for all streams of the device.
cudaError_t copy_and_fill(cudaStream_t stream) {
  constexpr std::size_t kBytes = 256;
  void* memory = nullptr;
  cudaError_t error = ::cudaMalloc(&memory, 2 * kBytes);
  if (error == cudaSuccess) error = ::cudaMemsetAsync(memory, 0, kBytes, stream);
  void* const half = static_cast<std::byte*>(memory) + kBytes;
  if (error == cudaSuccess) error = ::cudaMemcpyAsync(half, memory, kBytes, cudaMemcpyDeviceToDevice, stream);
  return error == cudaSuccess ? ::cudaStreamSynchronize(stream) : error;
}

}  // namespace

CudaDevices::CudaDevices(const CudaDriver& driver, int count)
    : driver_(driver), count_(count), facts_(new Facts[static_cast<std::size_t>(count)]) {}

Result<CudaDevices::Facts*> CudaDevices::facts_of(int device) const {
  if (device < 0 || device >= count_)
    return Status(ErrorCode::invalid_argument, "device " + std::to_string(device) + " does not exist");
  return &facts_[static_cast<std::size_t>(device)];
}

Result<DeviceIdentity> CudaDevices::identify(int device) {
  const auto facts = facts_of(device);
  if (!facts.ok()) return facts.status();
  std::optional<DeviceIdentity>& known = facts.value()->identity;
  const std::lock_guard lock(learning_);
  if (known.has_value()) return *known;
  Result<DeviceIdentity> identity = ask_identity(device);
  if (identity.ok()) known = *identity;
  return identity;
}

Result<DeviceIdentity> CudaDevices::ask_identity(int device) const {
  cudaDeviceProp properties;
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaGetDeviceProperties(&properties, device),
                                       "asking about device " + std::to_string(device)));
  DeviceIdentity identity;
  CUuuid uuid{};  // Of a MIG slice, where there is one.
  LOCKSTEP_RETURN_IF_ERROR(
      driver_status(driver_, driver_.device_uuid(&uuid, device), "asking for a device's id"));
  std::memcpy(identity.uuid.data(), uuid.bytes, identity.uuid.size());
  identity.name = properties.name;
  identity.memory = properties.totalGlobalMem;
  identity.sm = 10 * properties.major + properties.minor;
  identity.multiprocessors = properties.multiProcessorCount;
  identity.kernels_of_processes_overlap = has(device, CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
  return identity;
}

bool CudaDevices::has(int device, CUdevice_attribute attribute) const {
  int value = 0;
  return driver_.device_attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

Result<CUcontext> CudaDevices::context(int device) {
  const auto facts = facts_of(device);
  if (!facts.ok()) return facts.status();
  std::atomic<CUcontext>& known = facts.value()->context;
  if (CUcontext const context = known.load()) return context;
  CUcontext context = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(
      context_status(driver_status(driver_, driver_.retain_context(&context, device),
                                   "making device " + std::to_string(device) + " ready")));
  known.store(context);
  return context;
}

CUcontext CudaDevices::any_context() {
  for (int device = 0; device < count_; ++device) {
    if (CUcontext const known = facts_[static_cast<std::size_t>(device)].context.load()) return known;
  }
  for (int device = 0; device < count_; ++device) {
    unsigned flags = 0;
    int active = 0;
    if (driver_.context_state(device, &flags, &active) != CUDA_SUCCESS || active == 0) continue;
    if (const Result<CUcontext> made = context(device); made.ok()) return made.value();
  }
  return nullptr;
}

AnyContext::AnyContext(const CudaDriver& driver, CudaDevices& devices) : driver_(driver) {
  CUcontext current = nullptr;
  if (driver_.current_context(&current) == CUDA_SUCCESS && current != nullptr) return;
  CUcontext const any = devices.any_context();
  exists_ = any != nullptr;
  lent_ = exists_ && driver_.set_context(any) == CUDA_SUCCESS;
}

AnyContext::~AnyContext() {
  if (lent_) static_cast<void>(driver_.set_context(nullptr));
}

Result<CudaDevices::Ready> CudaDevices::make_ready(int device) {
  const auto found = facts_of(device);
  if (!found.ok()) return found.status();
  Facts& facts = *found.value();
  const auto ready = [&] { return Ready{facts.multiprocessors.load(), &facts.residency}; };
  if (facts.multiprocessors.load() != 0) return ready();
  const std::lock_guard lock(learning_);
  if (facts.multiprocessors.load() != 0) return ready();
  int count = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      cuda_status(::cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                  "asking for a device's multiprocessors"));
  Result<cuda::Residency> residency = cuda::load_kernels();
  if (!residency.ok()) return residency.status();
  facts.residency = std::move(*residency);
  facts.multiprocessors.store(count);
  return ready();
}

Status CudaDevices::load_copies(int device) {
  const auto found = facts_of(device);
  if (!found.ok()) return found.status();
  const std::lock_guard lock(learning_);
  if (found.value()->copies_are_loaded) return Status();
  cudaStream_t stream = nullptr;
  cudaError_t error = ::cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = copy_and_fill(stream);
  if (stream != nullptr) static_cast<void>(::cudaStreamDestroy(stream));
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(error, "copying on a device for the first time"));
  found.value()->copies_are_loaded = true;
  return Status();
}

}  // namespace lockstep::internal
