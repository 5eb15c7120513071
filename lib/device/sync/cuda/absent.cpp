// Compiled where the CUDA toolkit was not found.
#include "lib/device/sync/cuda_kernels.hpp"

namespace lockstep::internal::sync {

CudaKernels cuda_kernels() { return {}; }

}  // namespace lockstep::internal::sync
