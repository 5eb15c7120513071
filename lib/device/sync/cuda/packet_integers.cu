// Packet kernels of integers.
#include "lib/device/sync/cuda/packet_kernel.cuh"

namespace lockstep::internal::sync {

void add_packet_integers(PacketKernels& kernels) { cuda::list_integers(AddPacketKernel{&kernels}); }

}  // namespace lockstep::internal::sync
