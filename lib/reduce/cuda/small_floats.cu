// Kernels of f16, bf16 and the 8-bit floats.
#include "lib/reduce/cuda/reduce_kernel.cuh"

namespace lockstep::internal::cuda {

void add_small_float_kernels(KernelTable& table) { list_small_floats(AddReduceKernel{&table}); }

}  // namespace lockstep::internal::cuda
