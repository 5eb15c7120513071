// Packet kernels of f32, f64 and complex.
#include "lib/device/sync/cuda/packet_kernel.cuh"

namespace lockstep::internal::sync {

void add_packet_floats(PacketKernels& kernels) { cuda::list_floats(AddPacketKernel{&kernels}); }

}  // namespace lockstep::internal::sync
