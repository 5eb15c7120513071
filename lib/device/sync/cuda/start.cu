// Starting the kernels; and those of which there is one for all types.
#include <cuda_runtime_api.h>

#include "lib/device/sync/courier_body.hpp"
#include "lib/device/sync/cuda_kernels.hpp"
#include "lib/device/sync/message_body.hpp"
#include "lib/device/sync/packet_body.hpp"
#include "lib/device/sync/permit_body.hpp"
#include "lib/device/sync/phase_body.hpp"
#include "lib/reduce/cuda/load_kernel.hpp"

namespace lockstep::internal::sync {
namespace {

__global__ void __launch_bounds__(kMaxPhaseRanks) phase_kernel(const __grid_constant__ PhaseArguments phase) {
  const int peer = static_cast<int>(threadIdx.x);
  PhaseBody::publish(phase, peer);
  PhaseBody::await(phase, peer);
  __syncthreads();
  if (peer == 0 && phase.advance != 0) PhaseBody::end(phase);
}

struct CudaBlock {
  __device__ static bool first() { return threadIdx.x == 0; }
  __device__ static std::size_t thread() { return threadIdx.x; }
  __device__ static std::size_t threads() { return blockDim.x; }
  __device__ static bool any(bool one) { return __syncthreads_or(one) != 0; }
  __device__ static void sync() { __syncthreads(); }
};

__global__ void __launch_bounds__(kMessageThreads)
    message_kernel(const __grid_constant__ MessageArguments call) {
  MessageBody<CudaBlock>::run(call, static_cast<int>(blockIdx.x), CudaBlock());
}

__global__ void __launch_bounds__(kMessageThreads)
    courier_kernel(const __grid_constant__ CourierArguments call) {
  run_courier(call, static_cast<int>(blockIdx.x), CudaBlock());
}

__global__ void __launch_bounds__(kMaxPhaseRanks)
    enter_kernel(const __grid_constant__ PermitArguments permit) {
  const int open = __syncthreads_and(PermitBody::enter(permit, static_cast<int>(threadIdx.x)));
  if (threadIdx.x == 0) *permit.permit = open != 0 ? 1 : 0;
}

__global__ void __launch_bounds__(kMaxPhaseRanks)
    leave_kernel(const __grid_constant__ PermitArguments permit) {
  PermitBody::leave(permit, static_cast<int>(threadIdx.x));
}

__global__ void __launch_bounds__(kMaxPhaseRanks)
    close_kernel(const __grid_constant__ PermitArguments permit) {
  if (threadIdx.x == 0) PermitBody::close(permit);
  __syncthreads();
  PermitBody::note_writer(permit, static_cast<int>(threadIdx.x));
}

const PacketKernels& packet_kernels() {
  static const PacketKernels kernels = [] {
    PacketKernels all;
    add_packet_floats(all);
    add_packet_small_floats(all);
    add_packet_integers(all);
    return all;
  }();
  return kernels;
}

int launch(const void* kernel, const void* arguments, unsigned blocks, unsigned threads, void* stream) {
  void* list[] = {const_cast<void*>(arguments)};
  return static_cast<int>(
      ::cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), list, 0, static_cast<cudaStream_t>(stream)));
}

int start_packets(const void* arguments, void* stream) {
  const auto& call = *static_cast<const PacketArguments*>(arguments);
  return launch(packet_kernels().at({call.type, call.op}), arguments, static_cast<unsigned>(call.blocks),
                kPacketThreads, stream);
}

int start_messages(const void* arguments, void* stream) {
  const auto& call = *static_cast<const MessageArguments*>(arguments);
  return launch(reinterpret_cast<const void*>(&message_kernel), arguments,
                static_cast<unsigned>(call.lists * call.channels), kMessageThreads, stream);
}

int start_courier(const void* arguments, void* stream) {
  const auto& call = *static_cast<const CourierArguments*>(arguments);
  return launch(reinterpret_cast<const void*>(&courier_kernel), arguments, static_cast<unsigned>(call.blocks),
                kMessageThreads, stream);
}

/// A thread for each member.
template <typename Arguments, void (*kKernel)(Arguments)>
int start_one(const void* arguments, void* stream) {
  return launch(reinterpret_cast<const void*>(kKernel), arguments, 1, kMaxPhaseRanks, stream);
}

Status load_permits() {
  LOCKSTEP_RETURN_IF_ERROR(cuda::load_kernel(reinterpret_cast<const void*>(&enter_kernel)));
  LOCKSTEP_RETURN_IF_ERROR(cuda::load_kernel(reinterpret_cast<const void*>(&leave_kernel)));
  return cuda::load_kernel(reinterpret_cast<const void*>(&close_kernel));
}

Status load_all() {
  for (const auto& [key, kernel] : packet_kernels()) LOCKSTEP_RETURN_IF_ERROR(cuda::load_kernel(kernel));
  LOCKSTEP_RETURN_IF_ERROR(cuda::load_kernel(reinterpret_cast<const void*>(&phase_kernel)));
  LOCKSTEP_RETURN_IF_ERROR(cuda::load_kernel(reinterpret_cast<const void*>(&message_kernel)));
  LOCKSTEP_RETURN_IF_ERROR(cuda::load_kernel(reinterpret_cast<const void*>(&courier_kernel)));
  return load_permits();
}

}  // namespace

CudaKernels cuda_kernels() {
  return {start_packets,
          start_one<const PhaseArguments, phase_kernel>,
          start_messages,
          start_courier,
          start_one<const PermitArguments, enter_kernel>,
          start_one<const PermitArguments, leave_kernel>,
          start_one<const PermitArguments, close_kernel>,
          load_all,
          load_permits};
}

}  // namespace lockstep::internal::sync
