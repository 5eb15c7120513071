#include "collectives/make_transport.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "lib/base/hash.hpp"
#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/exchange.hpp"
#include "transports/mixed/mixed_transport.hpp"
#include "transports/shm/shm_transport.hpp"
#include "transports/tcp/switchboard.hpp"
#include "transports/tcp/tcp_transport.hpp"
#include "transports/ucx/ucx_transport.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace lockstep::internal {
namespace {

using Made = Result<std::unique_ptr<Transport>>;

/// The group that is to be carried, and how long that may take to set up.
struct Wanted {
  World& world;
  const EngineGroup& group;
  const std::vector<int>& world_ranks;
  std::chrono::milliseconds timeout;
  const StillWanted& still_wanted;
  const std::vector<int>& called;

  Wanted within(std::chrono::milliseconds left) const {
    return {world, group, world_ranks, left, still_wanted, called};
  }
};

/// Under the world's lock.
Status need_switchboard(World& world, std::chrono::milliseconds timeout) {
  if (world.switchboard) return {};
  auto made = Switchboard::make(*world.session, real_env(), timeout, world.model.model->tcp_sockets);
  if (made.ok()) world.switchboard = std::move(*made);
  return made.status();
}

Made make_tcp(const Wanted& wanted) {
  const auto& [world, group, world_ranks, timeout, still_wanted, called] = wanted;
  std::lock_guard lock(world.mutex);
  LOCKSTEP_RETURN_IF_ERROR(need_switchboard(world, timeout));
  return make_tcp_transport(group.id, group.rank, world_ranks, *world.switchboard);
}

Result<std::shared_ptr<UcxContext>> need_ucx(World& world) {
  std::lock_guard lock(world.mutex);
  if (world.ucx) return world.ucx;
  auto opened = open_ucx(world.session->size());
  if (opened.ok()) world.ucx = *opened;
  return opened;
}

Made make_ucx_for(const Wanted& wanted, PayloadMemory payloads) {
  const auto& [world, group, world_ranks, timeout, still_wanted, called] = wanted;
  auto context = need_ucx(world);
  if (!context.ok()) return context.status();
  // Without the lock: ranks that make several groups at once may begin with different ones.
  return make_ucx_transport(group.id, group.rank, world_ranks, *world.session, std::move(*context), timeout,
                            real_env(), payloads, still_wanted, called);
}

Made make_ucx(const Wanted& wanted) { return make_ucx_for(wanted, PayloadMemory::host); }

/// Under the world's lock.
Status need_verbs(World& world) {
  if (world.verbs) return {};
  auto opened = open_verbs(world.session->rank());
  if (opened.ok()) world.verbs = std::move(*opened);
  return opened.status();
}

/// Whether verbs carry what leaves a host: where every rank of the job has a device, and all on one network.
/// The first to ask is the job's own group, so that all ranks take part.
Result<bool> by_verbs(World& world, std::chrono::milliseconds timeout) {
  std::lock_guard lock(world.mutex);
  if (world.transports != "auto") return world.transports == "shm+verbs";
  if (world.rdma) return *world.rdma;
  const int size = world.session->size();
  std::string offer;
  std::error_code ignored;
  if (std::filesystem::exists("/sys/class/infiniband", ignored) && need_verbs(world).ok())
    offer = verbs_offer(*world.verbs, size);
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  auto offers = exchange(*world.session, real_env(), "rdma", offer, ranks, "the RDMA devices", timeout);
  if (!offers.ok()) return offers.status();
  world.rdma = !offer.empty() && std::all_of(offers->begin(), offers->end(),
                                             [&](const std::string& other) { return other == offer; });
  return *world.rdma;
}

Made make_verbs(const Wanted& wanted) {
  const auto& [world, group, world_ranks, timeout, still_wanted, called] = wanted;
  std::lock_guard lock(world.mutex);
  LOCKSTEP_RETURN_IF_ERROR(need_verbs(world));
  LOCKSTEP_RETURN_IF_ERROR(need_switchboard(world, timeout));
  return make_verbs_transport(group.id, group.rank, world_ranks, *world.switchboard, world.verbs, real_env());
}

Made make_shm(const Wanted& wanted) {
  const EngineGroup& group = wanted.group;
  if (on_one_host(group.members))
    return make_shm_transport(group.id, group.rank, group.members, wanted.timeout, real_env(), {},
                              wanted.still_wanted, wanted.called);
  return Status(
      ErrorCode::configuration,
      "transport shm was asked for, but the ranks cannot share memory: they are on several hosts, or "
      "of several containers or users; use auto or tcp");
}

/// The ranks of the group that share this rank's host.
std::vector<int> ranks_of_own_host(const EngineGroup& group) {
  const std::string& own = group.members[static_cast<std::size_t>(group.rank)].host_id;
  std::vector<int> ranks;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (group.members[static_cast<std::size_t>(rank)].host_id == own) ranks.push_back(rank);
  }
  return ranks;
}

/// Shared memory inside the host, verbs or TCP to the others. All that is waited for has one deadline.
Made make_mixed(const Wanted& wanted) {
  const EngineGroup& group = wanted.group;
  const Deadline deadline(real_env(), wanted.timeout);
  auto rdma = by_verbs(wanted.world, deadline.left());
  if (!rdma.ok()) return rdma.status();
  auto left = deadline.left_for("reaching the other hosts");
  if (!left.ok()) return left.status();
  auto far = *rdma ? make_verbs(wanted.within(*left)) : make_tcp(wanted.within(*left));
  const std::vector<int> ranks = ranks_of_own_host(group);
  if (!far.ok() || ranks.size() == 1) return far;
  std::vector<Member> members;
  std::vector<int> called;
  for (const int rank : ranks) {
    members.push_back(group.members[static_cast<std::size_t>(rank)]);
    called.push_back(wanted.called.empty() ? rank : wanted.called[static_cast<std::size_t>(rank)]);
  }
  const auto own = std::find(ranks.begin(), ranks.end(), group.rank) - ranks.begin();
  // Two hosts of a test may be one machine.
  const std::uint64_t id = hash_combine(group.id, static_cast<std::uint64_t>(ranks.front()));
  left = deadline.left_for("sharing memory inside this host");
  if (!left.ok()) return left.status();
  auto near = make_shm_transport(id, static_cast<int>(own), members, *left, real_env(), ranks,
                                 wanted.still_wanted, called);
  if (!near.ok()) return near.status();
  return make_mixed_transport(std::move(*near), ranks, std::move(*far), group.size());
}

Made make_shm_or_mixed(const Wanted& wanted) {
  return on_one_host(wanted.group.members) ? make_shm(wanted) : make_mixed(wanted);
}

struct TransportRow {
  std::string_view name;  ///< In LOCKSTEP_TRANSPORTS and InitOptions::transports.
  Made (*make)(const Wanted& wanted);
};
constexpr TransportRow kTransports[] = {{"auto", make_shm_or_mixed},
                                        {"shm", make_shm},
                                        {"tcp", make_tcp},
                                        {"ucx", make_ucx},
                                        {"verbs", make_verbs},
                                        {"shm+tcp", make_shm_or_mixed},
                                        {"shm+verbs", make_shm_or_mixed}};

const TransportRow* find_transport(std::string_view name) {
  const auto found = std::find_if(std::begin(kTransports), std::end(kTransports),
                                  [&](const TransportRow& row) { return row.name == name; });
  return found == std::end(kTransports) ? nullptr : &*found;
}

}  // namespace

std::string transport_choices() {
  std::string names;
  for (const TransportRow& row : kTransports) names += (names.empty() ? "" : "|") + std::string(row.name);
  return names;
}

Status check_transports(std::string_view name) {
  if (find_transport(name) != nullptr) return {};
  return Status(ErrorCode::configuration,
                "transport '" + std::string(name) + "' is unknown: write one of " + transport_choices());
}

Result<std::unique_ptr<Transport>> make_transport(World& world, const EngineGroup& group,
                                                  const std::vector<int>& world_ranks,
                                                  std::chrono::milliseconds timeout,
                                                  const StillWanted& still_wanted,
                                                  const std::vector<int>& called) {
  LOCKSTEP_RETURN_IF_ERROR(check_transports(world.transports));
  const TransportRow& row = *find_transport(world.transports);
  auto made = row.make({world, group, world_ranks, limit_of_start(timeout), still_wanted, called});
  if (!still_wanted || made.status().code() != ErrorCode::peer_lost) return made;
  return explain_loss(made.status(), still_wanted, real_env());
}

bool moves_device_memory(World& world, PayloadMemory memory) {
  std::lock_guard lock(world.mutex);
  return world.ucx != nullptr && ucx_moves(*world.ucx, memory);
}

Result<std::unique_ptr<Transport>> make_device_links(World& world, const EngineGroup& group,
                                                     const std::vector<int>& world_ranks,
                                                     PayloadMemory memory, std::chrono::milliseconds timeout,
                                                     const StillWanted& still_wanted) {
  return make_ucx_for({world, group, world_ranks, limit_of_start(timeout), still_wanted, {}}, memory);
}

}  // namespace lockstep::internal
