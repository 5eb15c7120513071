// Built where cuBLAS was not found.
#include <stdexcept>

#include "examples/gpt/device/compute.hpp"

namespace gpt {

std::unique_ptr<Compute> make_cuda_compute(lockstep::Stream) {
  throw std::runtime_error("this build has no cuBLAS: install the CUDA toolkit and build again");
}

}  // namespace gpt
