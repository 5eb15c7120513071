// The kernels of sync_kernels.hpp as CUDA has them.
#pragma once

#include <map>
#include <utility>

#include "lib/base/status.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal::sync {

inline constexpr unsigned kPacketThreads = 512;  ///< Of a block.
/// Few, so that the blocks of all ranks run side by side also where they share a small device.
inline constexpr unsigned kMessageThreads = 256;

/// As KernelLaunch::on_cuda.
using StartKernel = int (*)(const void* arguments, void* stream);

/// All null where CUDA was not built.
struct CudaKernels {
  StartKernel packets = nullptr, phase = nullptr, messages = nullptr, courier = nullptr, enter = nullptr,
              leave = nullptr, close = nullptr;
  Status (*load_all)() = nullptr;
  Status (*load_permits)() = nullptr;  ///< enter, leave, close.
};
CudaKernels cuda_kernels();

/// By type and operator, as cudaLaunchKernel takes them.
using PacketKernels = std::map<std::pair<DataType, ReduceOp>, const void*>;
void add_packet_floats(PacketKernels& kernels);
void add_packet_small_floats(PacketKernels& kernels);
void add_packet_integers(PacketKernels& kernels);

}  // namespace lockstep::internal::sync
