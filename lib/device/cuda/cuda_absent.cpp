// Compiled where the CUDA toolkit was not found.
#include "lib/device/cuda/cuda_backend.hpp"

namespace lockstep::internal {

Result<Backend*> open_cuda_backend() {
  return Status(
      ErrorCode::not_supported,
      "no CUDA device: this lockstep was built without the CUDA toolkit. Build it where nvcc is found, "
      "or set LOCKSTEP_DEVICE_BACKEND=host to develop without a GPU");
}

}  // namespace lockstep::internal
