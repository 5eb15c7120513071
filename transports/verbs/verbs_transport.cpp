#include "transports/verbs/verbs_transport.hpp"

#include "transports/fabric/fabric_transport.hpp"
#include "transports/verbs/verbs_fabric.hpp"

namespace lockstep::internal {

Result<std::unique_ptr<Transport>> make_verbs_transport(std::uint64_t group, int rank,
                                                        std::span<const int> world_ranks,
                                                        Switchboard& switchboard,
                                                        std::shared_ptr<VerbsDevice> device, Env& env) {
  auto meeting = VerbsMeeting::make(group, rank, world_ranks, switchboard);
  if (!meeting.ok()) return meeting.status();
  const int size = static_cast<int>(world_ranks.size());
  auto fabric = VerbsFabric::make(std::move(device), std::move(*meeting), size, env);
  if (!fabric.ok()) return fabric.status();
  return make_fabric_transport(std::move(*fabric), size, env);
}

}  // namespace lockstep::internal
