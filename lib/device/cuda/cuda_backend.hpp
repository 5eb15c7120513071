// The backend of NVIDIA GPUs.
#pragma once

#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// The one of this process; never destroyed. not_supported "no CUDA device: ..." says what is missing: CUDA
/// in this build, the driver, or a device.
Result<Backend*> open_cuda_backend();

}  // namespace lockstep::internal
