// The kernels by which ranks meet in device memory, for both backends.
#pragma once

#include "lib/device/backend.hpp"
#include "lib/device/sync/courier_body.hpp"
#include "lib/device/sync/message_call.hpp"
#include "lib/device/sync/packet_call.hpp"
#include "lib/device/sync/permit_body.hpp"
#include "lib/device/sync/phase_body.hpp"

namespace lockstep::internal::sync {

/// Whose packets fill a block of threads; the grid of a call, the same on all ranks.
int packet_blocks(std::uint64_t largest_region_bytes);

/// Enqueue. `call.type` and `op` are those of a kernel (cuda::work_of).
Status start(Backend& backend, const PacketArguments& call, DeviceStream stream);
Status start(Backend& backend, const PhaseArguments& phase, DeviceStream stream);
Status start(Backend& backend, const MessageArguments& call, DeviceStream stream);
Status start(Backend& backend, const CourierArguments& call, DeviceStream stream);
/// The word at `permit` becomes 1 if all members' memory is open, else 0; leave() takes the writer's word
/// back.
Status enter(Backend& backend, const PermitArguments& permit, DeviceStream stream);
Status leave(Backend& backend, const PermitArguments& permit, DeviceStream stream);
/// From here on nobody begins to write to this rank's memory. Who writes still is noted; again, in each call.
Status close(Backend& backend, const PermitArguments& permit, DeviceStream stream);

/// Which kernels a rank may start.
enum class Kernels : std::uint8_t { permits, all };
/// Loads them to the selected device, before a kernel waits there for another rank. Nothing to do on the host
/// backend.
Status load(Backend& backend, Kernels which);

}  // namespace lockstep::internal::sync
