#include "transports/verbs/verbs_transport.hpp"

#include <string>

#include "lib/bootstrap/exchange.hpp"
#include "transports/fabric/fabric_transport.hpp"
#include "transports/verbs/verbs_fabric.hpp"

namespace lockstep::internal {

Result<std::unique_ptr<Transport>> make_verbs_transport(std::uint64_t group, int rank,
                                                        std::span<const int> world_ranks, Session& session,
                                                        std::shared_ptr<VerbsDevice> device,
                                                        std::chrono::milliseconds timeout, Env& env) {
  auto fabric = VerbsFabric::make(std::move(device), rank, static_cast<int>(world_ranks.size()), env);
  if (!fabric.ok()) return fabric.status();
  const std::string name = "verbs/" + std::to_string(group);
  auto addresses =
      exchange(session, env, name, (*fabric)->addresses(), world_ranks, "the RDMA addresses", timeout);
  if (!addresses.ok()) return addresses.status();
  LOCKSTEP_RETURN_IF_ERROR((*fabric)->meet(*addresses));
  // What is sent before the peer can receive would be repeated, and given up in the end.
  auto ready = exchange(session, env, name + "/ready", "1", world_ranks, "the RDMA connections", timeout);
  if (!ready.ok()) return ready.status();
  return make_fabric_transport(std::move(*fabric), static_cast<int>(world_ranks.size()), env);
}

}  // namespace lockstep::internal
