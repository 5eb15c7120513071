// Kernels of f32, f64 and complex.
#include "lib/reduce/cuda/reduce_kernel.cuh"

namespace lockstep::internal::cuda {

void add_float_kernels(KernelTable& table) { list_floats(AddReduceKernel{&table}); }

}  // namespace lockstep::internal::cuda
