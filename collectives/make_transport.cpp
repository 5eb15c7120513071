// Which transport carries a group.
#include <algorithm>

#include "collectives/communicator_core.hpp"
#include "transports/shm/shm_transport.hpp"
#include "transports/tcp/switchboard.hpp"
#include "transports/tcp/tcp_transport.hpp"
#include "transports/ucx/ucx_transport.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace lockstep::internal {
namespace {

bool on_one_host(const EngineGroup& group) {
  return std::all_of(group.members.begin(), group.members.end(),
                     [&](const Member& m) { return m.host_id == group.members.front().host_id; });
}

Status unknown_transport(const std::string& name) {
  return Status(ErrorCode::configuration,
                "transport '" + name + "' is unknown: use auto, shm, tcp, ucx or verbs");
}

Result<std::unique_ptr<Transport>> make_tcp(World& world, const EngineGroup& group,
                                            const std::vector<int>& world_ranks) {
  std::lock_guard lock(world.mutex);
  if (!world.switchboard) {
    auto made = Switchboard::make(*world.session, real_env());
    if (!made.ok()) return made.status();
    world.switchboard = std::move(*made);
  }
  return make_tcp_transport(group.id, group.rank, world_ranks, *world.switchboard);
}

Result<std::unique_ptr<Transport>> make_ucx(World& world, const EngineGroup& group,
                                            const std::vector<int>& world_ranks,
                                            std::chrono::milliseconds timeout) {
  std::lock_guard lock(world.mutex);
  if (!world.ucx) {
    auto opened = open_ucx(world.session->size());
    if (!opened.ok()) return opened.status();
    world.ucx = std::move(*opened);
  }
  return make_ucx_transport(group.id, group.rank, world_ranks, *world.session, world.ucx, timeout,
                            real_env());
}

Result<std::unique_ptr<Transport>> make_verbs(World& world, const EngineGroup& group,
                                              const std::vector<int>& world_ranks,
                                              std::chrono::milliseconds timeout) {
  std::lock_guard lock(world.mutex);
  if (!world.verbs) {
    auto opened = open_verbs(world.session->rank());
    if (!opened.ok()) return opened.status();
    world.verbs = std::move(*opened);
  }
  return make_verbs_transport(group.id, group.rank, world_ranks, *world.session, world.verbs, timeout,
                              real_env());
}

}  // namespace

Result<std::unique_ptr<Transport>> make_transport(World& world, const EngineGroup& group,
                                                  const std::vector<int>& world_ranks,
                                                  std::chrono::milliseconds timeout) {
  const std::string& wanted = world.transports;
  if (wanted == "tcp") return make_tcp(world, group, world_ranks);
  if (wanted == "ucx") return make_ucx(world, group, world_ranks, timeout);
  if (wanted == "verbs") return make_verbs(world, group, world_ranks, timeout);
  if (wanted != "auto" && wanted != "shm") return unknown_transport(wanted);
  if (on_one_host(group)) {
    return make_shm_transport(group.id, group.rank, group.members, timeout, real_env());
  }
  if (wanted == "auto") return make_tcp(world, group, world_ranks);
  return Status(ErrorCode::configuration,
                "transport shm was asked for, but the ranks are on several hosts; use auto or tcp");
}

}  // namespace lockstep::internal
