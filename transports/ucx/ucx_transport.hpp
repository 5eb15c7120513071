// The UCX transport: links over a UCP worker, for fabrics that UCX knows (InfiniBand, RoCE, and TCP or memory
// of one host to try it). UCX's own variables (UCX_TLS, UCX_NET_DEVICES ...) choose among them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include "lib/base/env.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/bootstrap/still_wanted.hpp"
#include "transports/fabric/fabric.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// What a process holds of UCX; shared by all its transports.
class UcxContext;

/// Loads UCX and starts it, for a job of `world` ranks. Error `configuration`: this build has no UCX, its
/// library is not on this machine, or it does not start.
Result<std::shared_ptr<UcxContext>> open_ucx(int world);

/// Whether UCX says that it moves such payloads from and to where they lie.
bool ucx_moves(const UcxContext& context, PayloadMemory payloads);

/// The transport of the group `group`, in which this process is `rank` and member i has the session's rank
/// world_ranks[i]. Workers' addresses travel through the session's store: blocks until all members are there,
/// at most `timeout`, and not when that is not `still_wanted`. Errors here call them as `called` says (empty:
/// as the session does). Links connect when they are first used.
Result<std::unique_ptr<Transport>> make_ucx_transport(std::uint64_t group, int rank,
                                                      std::span<const int> world_ranks, Session& session,
                                                      std::shared_ptr<UcxContext> context,
                                                      std::chrono::milliseconds timeout, Env& env,
                                                      PayloadMemory payloads = PayloadMemory::host,
                                                      const StillWanted& still_wanted = {},
                                                      std::span<const int> called = {});

}  // namespace lockstep::internal
