// The one reduction kernel, for every element and operator.
#pragma once

#include "lib/reduce/cuda/kernel_list.hpp"
#include "lib/reduce/cuda/kernel_table.hpp"

namespace lockstep::internal::cuda {

template <class Element, class Op>
__global__ void __launch_bounds__(kThreads) reduce_kernel(const __grid_constant__ PassArguments pass) {
  PassBody<Element, Op>::run(pass, std::size_t{blockIdx.x} * blockDim.x + threadIdx.x,
                             std::size_t{gridDim.x} * blockDim.x);
}

struct AddReduceKernel {
  KernelTable* table;
  template <class Element, class Op>
  void operator()(DataType type, ReduceOp op) const {
    table->reduce[{type, op}] = reinterpret_cast<const void*>(&reduce_kernel<Element, Op>);
  }
};

}  // namespace lockstep::internal::cuda
