// The one packet kernel, for every element and operator.
#pragma once

#include "lib/device/sync/cuda_kernels.hpp"
#include "lib/device/sync/packet_body.hpp"
#include "lib/reduce/cuda/kernel_list.hpp"

namespace lockstep::internal::sync {

/// A block reads one epoch and leaves the next in its own place and in those that no block of this grid has,
/// so that all places agree after every grid, and none is read while it is written.
template <class Element, class Op>
__global__ void __launch_bounds__(kPacketThreads)
    packet_kernel(const __grid_constant__ PacketArguments call) {
  const std::uint64_t epoch = call.epochs[blockIdx.x] + 1;
  PacketBody<Element, Op>::run(call, epoch, std::size_t{blockIdx.x} * blockDim.x + threadIdx.x,
                               std::size_t{gridDim.x} * blockDim.x);
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned place = blockIdx.x; place < kMaxPacketBlocks; place += gridDim.x) call.epochs[place] = epoch;
}

struct AddPacketKernel {
  PacketKernels* kernels;
  template <class Element, class Op>
  void operator()(DataType type, ReduceOp op) const {
    (*kernels)[{type, op}] = reinterpret_cast<const void*>(&packet_kernel<Element, Op>);
  }
};

}  // namespace lockstep::internal::sync
