// Built where cuBLAS was not found.
#include <stdexcept>

#include "examples/digits/device/compute.hpp"

namespace digits {

std::unique_ptr<Compute> make_cuda_compute(lockstep::Stream) {
  throw std::runtime_error("this example was built without cuBLAS; build it where the CUDA toolkit is found");
}

}  // namespace digits
