// Communicators: how they begin, what comes out of them, how they end.
#include <chrono>
#include <functional>
#include <future>
#include <utility>

#include "integrations/nccl/background.hpp"
#include "integrations/nccl/comm.hpp"
#include "integrations/nccl/devices.hpp"
#include "integrations/nccl/group.hpp"
#include "integrations/nccl/result.hpp"
#include "integrations/nccl/unique_id.hpp"

using namespace lockstep::nccl;
using lockstep::Communicator;
using lockstep::InitOptions;

namespace {

// What ncclCommDestroy waits for the other ranks before it leaves the rest to the background.
constexpr std::chrono::seconds kDestroyPatience{5};
// What ncclCommRevoke waits for this rank's streams, which may wait for a communicator that is revoked next.
constexpr std::chrono::seconds kRevokePatience{1};

struct Met {
  Communicator ranks;
  Family family;
};

/// What a communicator comes out of, or null.
struct Source {
  std::shared_ptr<ncclComm> comm;
  bool uses_ranks = false;
};

/// A handle at once; what it stands for when `meet` has given the ranks: now, at the end of the group, or in
/// the background.
ncclResult_t create(const char* function, ncclComm_t* out, int device, const Config& config,
                    const Source& source, std::function<Met()> meet) {
  const auto comm = std::make_shared<ncclComm>(device, config);
  *out = Handles::add(comm);
  const auto begin = [comm, meet = std::move(meet)] {
    Met met = meet();
    comm->begin(std::move(met.ranks), std::move(met.family));
  };
  const auto abandon = [comm, out](ncclResult_t why, const std::string& text) {
    comm->fail(why, text);
    if (!comm->config().blocking) return;
    Handles::remove(comm.get());
    *out = nullptr;
  };
  return Group::current().add(
      {comm, source.comm != nullptr ? source.comm : comm, source.uses_ranks, function, begin, abandon});
}

Met meet_at(const UniqueId& id, int ranks, int rank) {
  InitOptions options;
  options.rank = rank;
  options.world_size = ranks;
  options.rendezvous = id.address;
  options.job_id = id.job_id;
  options.secret = id.secret;
  Family family{id.secret, adopt_rendezvous(id)};
  // Whether the ranks meet or one of them gives up, nobody will ask for the place again.
  const struct Forgotten {
    const UniqueId& id;
    ~Forgotten() { forget_rendezvous(id); }
  } forgotten{id};
  return {Communicator::create(options), std::move(family)};
}

ncclResult_t init_rank(const char* function, ncclComm_t* out, int ranks, int rank, const ncclUniqueId& bytes,
                       const ncclConfig_t* config) {
  required(out, "comm") = nullptr;
  if (ranks < 1) throw invalid_argument("nranks is " + std::to_string(ranks) + "; it counts from 1");
  if (rank < 0 || rank >= ranks) {
    throw invalid_argument("rank " + std::to_string(rank) + " is not one of 0 to " +
                           std::to_string(ranks - 1));
  }
  const UniqueId id = read_unique_id(bytes);
  const Config read = read_config(config);
  return create(function, out, current_device(), read, {}, [=] { return meet_at(id, ranks, rank); });
}

/// `devices[r]` becomes rank r of a group in this process.
void init_all(ncclComm_t* out, const std::vector<int>& devices) {
  std::vector<Communicator> ranks = Communicator::local_group(static_cast<int>(devices.size()));
  const Family family{random_text(kSecretBytes), nullptr};
  std::vector<std::shared_ptr<ncclComm>> comms;
  for (const int device : devices) comms.push_back(std::make_shared<ncclComm>(device, Config()));
  const auto begin_one = [&](std::size_t r) {
    const std::string name = "rank " + std::to_string(r);
    const auto begin = [&] { comms[r]->begin(std::move(ranks[r]), family); };
    const ncclResult_t result = guarded(name.c_str(), begin);
    if (result != ncclSuccess) throw Refusal(result, last_text());
  };
  std::vector<std::future<void>> begun;  // They join their threads, also when a later one has none.
  {
    const SignalsBlocked blocked;
    for (std::size_t r = 0; r < devices.size(); ++r)
      begun.push_back(std::async(std::launch::async, begin_one, r));
  }
  for (std::future<void>& each : begun) each.get();
  for (std::size_t r = 0; r < devices.size(); ++r) out[r] = Handles::add(comms[r]);
}

std::vector<int> survivors_of(const ncclComm& comm, const int* excluded, int excluded_count) {
  if (excluded_count < 1 || excluded == nullptr) throw invalid_argument("there are no ranks to exclude");
  std::vector<bool> stays(static_cast<std::size_t>(comm.size()), true);
  for (int i = 0; i < excluded_count; ++i) {
    if (excluded[i] < 0 || excluded[i] >= comm.size()) {
      throw invalid_argument("rank " + std::to_string(excluded[i]) + " to exclude is not one of " +
                             std::to_string(comm.size()));
    }
    stays[static_cast<std::size_t>(excluded[i])] = false;
  }
  if (!stays[static_cast<std::size_t>(comm.rank())])
    throw invalid_argument("this rank is among those to exclude: it does not call ncclCommShrink");
  std::vector<int> survivors;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (stays[static_cast<std::size_t>(rank)]) survivors.push_back(rank);
  }
  return survivors;
}

ncclResult_t finalize(ncclComm& comm) {
  const Endings all = comm.begin_end();
  if (!comm.config().blocking) return ncclInProgress;
  for (const auto& ending : all) ending->wait();
  const ncclResult_t state = comm.state();
  if (state != ncclSuccess && state != ncclInProgress) throw Refusal(state, comm.text());
  return ncclSuccess;  // also while ranks of this process have yet to be finalized
}

void destroy(std::shared_ptr<ncclComm> comm) {
  Endings endings;
  if (comm->ending() != nullptr) {
    endings = {comm->ending()};
  } else if (comm->is_usable()) {
    endings = comm->begin_end();
  }
  std::vector<std::shared_ptr<ncclComm>> last;  // not by an initializer list, which would keep a copy
  last.push_back(std::move(comm));
  endings.push_back(let_go(std::move(last)));
  wait_for(endings, kDestroyPatience);
}

void revoke(ncclComm& comm) {
  const auto ending = comm.revoke();
  // In a group others may have to be revoked first.
  if (ending != nullptr && !Group::current().open()) wait_for({ending}, kRevokePatience);
}

}  // namespace

ncclResult_t pncclGetUniqueId(ncclUniqueId* uniqueId) {
  return guarded("ncclGetUniqueId", [&] { required(uniqueId, "uniqueId") = make_unique_id(); });
}
LOCKSTEP_NCCL_ALIAS(GetUniqueId);

ncclResult_t pncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  return grouped("ncclCommInitRank",
                 [&] { return init_rank("ncclCommInitRank", comm, nranks, rank, commId, nullptr); });
}
LOCKSTEP_NCCL_ALIAS(CommInitRank);

ncclResult_t pncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                     ncclConfig_t* config) {
  return grouped("ncclCommInitRankConfig",
                 [&] { return init_rank("ncclCommInitRankConfig", comm, nranks, rank, commId, config); });
}
LOCKSTEP_NCCL_ALIAS(CommInitRankConfig);

// All ids have to be good, and the ranks meet at the first. At the others nobody will: what serves them here
// ends.
ncclResult_t pncclCommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                       ncclUniqueId* commIds, ncclConfig_t* config) {
  return grouped("ncclCommInitRankScalable", [&] {
    if (nId < 1 || nId > nranks)
      throw invalid_argument("nId is " + std::to_string(nId) + ", not one of 1 to nranks");
    required(commIds, "commIds");
    const std::string meeting = read_unique_id(commIds[0]).job_id;
    for (int i = 1; i < nId; ++i) {
      const UniqueId other = read_unique_id(commIds[i]);
      if (other.job_id != meeting) forget_rendezvous(other);
    }
    return init_rank("ncclCommInitRankScalable", newcomm, nranks, myrank, commIds[0], config);
  });
}
LOCKSTEP_NCCL_ALIAS(CommInitRankScalable);

ncclResult_t pncclCommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  return grouped("ncclCommInitAll", [&] {
    required(comm, "comm");
    const int there = device_count();
    if (ndev < 1) throw invalid_argument("ndev is " + std::to_string(ndev) + "; it counts from 1");
    std::vector<int> devices;
    for (int i = 0; i < ndev; ++i) devices.push_back(devlist != nullptr ? devlist[i] : i);
    for (const int device : devices) {
      if (device >= 0 && device < there) continue;
      throw invalid_argument("device " + std::to_string(device) + " is not one of the " +
                             std::to_string(there) + " here");
    }
    init_all(comm, devices);
  });
}
LOCKSTEP_NCCL_ALIAS(CommInitAll);

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config) {
  return grouped("ncclCommSplit", [&]() -> ncclResult_t {
    const auto parent = Handles::find(comm);
    required(newcomm, "newcomm") = nullptr;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
      throw invalid_argument("color is " + std::to_string(color) +
                             ", neither NCCL_SPLIT_NOCOLOR nor 0 or more");
    parent->size();  // refuses what cannot be split
    const Config read = read_config(config, parent->config());
    if (color == NCCL_SPLIT_NOCOLOR) {
      return Group::current().add(
          {parent, parent, true, "ncclCommSplit", [=] { parent->split(-1, key); }, {}});
    }
    return create("ncclCommSplit", newcomm, parent->device(), read, {parent, true}, [=] {
      return Met{std::move(*parent->split(color, key)), parent->family()};
    });
  });
}
LOCKSTEP_NCCL_ALIAS(CommSplit);

ncclResult_t pncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                             ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  return grouped("ncclCommShrink", [&] {
    const auto parent = Handles::find(comm);
    required(newcomm, "newcomm") = nullptr;
    if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT)
      throw invalid_argument("shrinkFlags is neither NCCL_SHRINK_DEFAULT nor NCCL_SHRINK_ABORT");
    const std::vector<int> survivors = survivors_of(*parent, excludeRanksList, excludeRanksCount);
    const Config read = read_config(config, parent->config());
    if (shrinkFlags == NCCL_SHRINK_ABORT) {
      revoke(*parent);
    } else if (const auto state = parent->state(); state != ncclSuccess && state != ncclInProgress) {
      throw invalid_usage("the communicator has failed (" + parent->text() +
                          "): shrink it with NCCL_SHRINK_ABORT");
    }
    // Not after the jobs on the parent's ranks, which may wait for those that are excluded.
    return create("ncclCommShrink", newcomm, parent->device(), read, {parent, false}, [=] {
      Family family;
      Communicator ranks = parent->meet_again(survivors, family);
      return Met{std::move(ranks), std::move(family)};
    });
  });
}
LOCKSTEP_NCCL_ALIAS(CommShrink);

ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  return guarded("ncclCommRevoke", [&] {
    const auto owner = Handles::find(comm);
    if (revokeFlags != NCCL_REVOKE_DEFAULT) throw invalid_argument("revokeFlags is not NCCL_REVOKE_DEFAULT");
    revoke(*owner);
  });
}
LOCKSTEP_NCCL_ALIAS(CommRevoke);

ncclResult_t pncclCommFinalize(ncclComm_t comm) {
  return guarded("ncclCommFinalize", [&] { return finalize(*Handles::find(comm)); });
}
LOCKSTEP_NCCL_ALIAS(CommFinalize);

ncclResult_t pncclCommDestroy(ncclComm_t comm) {
  return guarded("ncclCommDestroy", [&] {
    if (comm == nullptr) return;
    auto owner = Handles::find(comm);
    Handles::remove(comm);
    destroy(std::move(owner));
  });
}
LOCKSTEP_NCCL_ALIAS(CommDestroy);

ncclResult_t pncclCommAbort(ncclComm_t comm) {
  return guarded("ncclCommAbort", [&] {
    if (comm == nullptr) return;
    auto owner = Handles::find(comm);
    Handles::remove(comm);
    owner->abort();
    Group::current().add_aborted(std::move(owner));
  });
}
LOCKSTEP_NCCL_ALIAS(CommAbort);
