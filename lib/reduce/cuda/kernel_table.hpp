// The addresses of the kernels, by type and op: what the .cu files give to the one that starts them.
#pragma once

#include <map>
#include <utility>

#include "lockstep/types.hpp"

namespace lockstep::internal::cuda {

/// Kernels as cudaLaunchKernel takes them. Those of conversions by type.
struct KernelTable {
  std::map<std::pair<DataType, ReduceOp>, const void*> reduce;  ///< Of (PassArguments).
  std::map<DataType, const void*> narrow, widen;                ///< Of (ConvertArguments).
  std::map<DataType, const void*> quantise, dequantise;         ///< Of (BlockArguments); a warp for a block.
};

void add_float_kernels(KernelTable& table);
void add_small_float_kernels(KernelTable& table);
void add_integer_kernels(KernelTable& table);
void add_convert_kernels(KernelTable& table);

inline constexpr unsigned kThreads = 256;  ///< Of a block of any kernel.

}  // namespace lockstep::internal::cuda
