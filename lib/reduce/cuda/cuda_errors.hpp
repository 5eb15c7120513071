// CUDA's errors as Status.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// "<what>: <CUDA's words>", and the error is taken back from the runtime, which would give it to the
/// caller's next call too. Only what callers act on has a code of its own.
inline Status cuda_status(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return Status();
  static_cast<void>(::cudaGetLastError());
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory
                         : error == cudaErrorInvalidDevice  ? ErrorCode::invalid_argument
                         : error == cudaErrorNotSupported   ? ErrorCode::not_supported
                                                            : ErrorCode::device_failed;
  return Status(code, what + ": " + ::cudaGetErrorString(error));
}

/// Of making a device's context.
inline Status context_status(Status made) {
  if (made.code() != ErrorCode::out_of_memory) return made;
  return Status(
      made.code(),
      made.message() +
          ". Another process may use the device's memory (nvidia-smi tells); under MPS the processes "
          "share some 64 connections: set CUDA_DEVICE_MAX_CONNECTIONS to 64 divided by their number");
}

}  // namespace lockstep::internal
