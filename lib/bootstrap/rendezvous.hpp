// Rendezvous: from an address to an open store, hosted here if it has to be.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/hosted_store.hpp"
#include "lib/bootstrap/launch.hpp"
#include "lib/bootstrap/store.hpp"
#include "lib/bootstrap/tcp_store.hpp"

namespace lockstep::internal {

/// Members are destroyed in reverse: the store before its server.
struct Meeting {
  std::unique_ptr<HostedStore> hosted;       ///< Of a tcp:// rendezvous, in rank 0.
  std::shared_ptr<Store> store;              ///< Of all groups that meet there: see GroupStore.
  std::optional<StoreClientOptions> client;  ///< Of a tcp:// rendezvous: how to reach its server.
  WhileWaiting report{};                     ///< What says on stderr for whom one waits.
  int server_rank = -1;  ///< The rank that hosts the store; -1 for a launcher, or no server.
  std::string hint;      ///< What to look at if ranks do not come. Mostly empty.
};

/// Opens the store at launch.rendezvous: memory://name, file:///path, local://name, tcp://host:port. Rank 0
/// serves the last unless the launcher does: on the address given, or on all of the host's where that is a
/// name, not "localhost", that leads to loopback (as Debian's 127.0.1.1 of a host's own name), and the job
/// has a secret or LOCKSTEP_INSECURE=1. Waits until `deadline` for a server to come up, and says so on stderr
/// now and then, as of a store that is late afterwards. `group` numbers the groups that meet there
/// (lib/bootstrap/group_number.hpp).
Result<Meeting> open_meeting(const Launch& launch, const std::string& secret, std::uint64_t group,
                             const Deadline& deadline, Env& env);

/// `status`, and the hint if ranks that did not come are what it tells of.
Status with_hint(const Status& status, const std::string& hint);

}  // namespace lockstep::internal
