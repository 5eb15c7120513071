// The verbs transport: links over reliable connections of an RDMA device (InfiniBand, RoCE), made with
// libibverbs alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lib/base/env.hpp"
#include "transports/tcp/switchboard.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// What a process holds of its RDMA device; shared by all its transports.
class VerbsDevice;

/// Loads libibverbs and opens the device for `rank`: of those that LOCKSTEP_VERBS_DEVICE lists, in turn, or
/// the first with an active port. Error `configuration`: this build has no verbs, the library or a device is
/// missing.
Result<std::shared_ptr<VerbsDevice>> open_verbs(int rank);

/// What a rank tells the others of its device, so that all of a job choose alike: the network that its port
/// is on. Empty where the device cannot carry a job of `world` ranks, or this process may not lock memory for
/// it.
std::string verbs_offer(const VerbsDevice& device, int world);

/// The transport of the group `group`, in which this process is `rank` and member i has the session's rank
/// world_ranks[i]. Does not communicate: pairs connect when one of the two first wants the other, and tell
/// each other their addresses over the switchboard, which must be there until close().
Result<std::unique_ptr<Transport>> make_verbs_transport(std::uint64_t group, int rank,
                                                        std::span<const int> world_ranks,
                                                        Switchboard& switchboard,
                                                        std::shared_ptr<VerbsDevice> device, Env& env);

}  // namespace lockstep::internal
