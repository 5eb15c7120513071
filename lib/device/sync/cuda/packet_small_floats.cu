// Packet kernels of f16, bf16 and the 8-bit floats.
#include "lib/device/sync/cuda/packet_kernel.cuh"

namespace lockstep::internal::sync {

void add_packet_small_floats(PacketKernels& kernels) { cuda::list_small_floats(AddPacketKernel{&kernels}); }

}  // namespace lockstep::internal::sync
