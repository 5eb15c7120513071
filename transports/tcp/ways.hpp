// Ways: where the ranks of a job listen, and by which of those addresses this host reaches the others.
#pragma once

#include <chrono>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lib/bootstrap/handshake.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/net/reactor.hpp"
#include "transports/tcp/published_address.hpp"

namespace lockstep::internal {

struct Ways {
  std::vector<std::vector<HostPort>> addresses;  ///< Index = rank; in the order in which they are tried.
  std::vector<int> rails;                        ///< Index = rank: of so many first addresses.
};

/// Publishes `mine` as "tcp/<rank>", reads everybody's, and has one rank of each host try the other hosts:
/// blocks until all ranks did, at most `timeout`. Errors: a rank that did not come; ranks that disagree on
/// the sockets of a link; hosts that cannot reach each other, with the matrix of who reached whom, equal on
/// all ranks.
Result<Ways> find_ways(Session& session, Env& env, Reactor& reactor, const HandshakeKey& key,
                       const PublishedAddress& mine, std::chrono::milliseconds timeout);

}  // namespace lockstep::internal
