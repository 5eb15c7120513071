// Loading a kernel before its first start: CUDA loads it then, and may wait for kernels that run; for ever,
// if one of these waits for the new one.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "lib/base/status.hpp"

namespace lockstep::internal::cuda {

/// To the selected device.
inline Status load_kernel(const void* kernel) {
  cudaFuncAttributes attributes;
  const cudaError_t error = ::cudaFuncGetAttributes(&attributes, kernel);
  if (error == cudaSuccess) return Status();
  static_cast<void>(::cudaGetLastError());
  return Status(ErrorCode::not_supported, std::string("this build has no kernels for this GPU (") +
                                              ::cudaGetErrorString(error) +
                                              "): add its architecture to LOCKSTEP_CUDA_ARCHITECTURES");
}

}  // namespace lockstep::internal::cuda
