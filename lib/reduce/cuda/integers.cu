// Kernels of the integers, and of bits.
#include "lib/reduce/cuda/reduce_kernel.cuh"

namespace lockstep::internal::cuda {

void add_integer_kernels(KernelTable& table) { list_integers(AddReduceKernel{&table}); }

}  // namespace lockstep::internal::cuda
