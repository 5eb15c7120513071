// Loading a kernel before its first start: CUDA loads it then, and may wait for kernels that run; for ever,
// if one of these waits for the new one.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "lib/base/status.hpp"
#include "lib/reduce/cuda/cuda_errors.hpp"

namespace lockstep::internal::cuda {

/// Of an attempt to load one. Only what is no fault of the device is one of the build.
inline Status loaded(cudaError_t error) {
  if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorInvalidDeviceFunction)
    return cuda_status(error, "loading a kernel");
  static_cast<void>(::cudaGetLastError());
  return Status(ErrorCode::not_supported, std::string("this build has no kernels for this GPU (") +
                                              ::cudaGetErrorString(error) +
                                              "): add its architecture to LOCKSTEP_CUDA_ARCHITECTURES");
}

/// To the selected device.
inline Status load_kernel(const void* kernel) {
  cudaFuncAttributes attributes;
  return loaded(::cudaFuncGetAttributes(&attributes, kernel));
}

}  // namespace lockstep::internal::cuda
