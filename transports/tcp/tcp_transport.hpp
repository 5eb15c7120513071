// TcpTransport: all TCP links of one communicator, made when they are first asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "transports/tcp/switchboard.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// The transport of the group `group`, in which this process is `rank` and member i has the session's rank
/// world_ranks[i]. `group` is equal on all members and different from that of any other communicator of the
/// job. The switchboard must be there until close(), which drops the links. Does not communicate.
Result<std::unique_ptr<Transport>> make_tcp_transport(std::uint64_t group, int rank,
                                                      std::span<const int> world_ranks,
                                                      Switchboard& switchboard);

}  // namespace lockstep::internal
