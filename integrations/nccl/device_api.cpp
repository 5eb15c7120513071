// The host side of NCCL's device interface (nccl_device.h), which programs use to write kernels of their own.
// lockstep gives kernels nothing to call: what would have to is refused, and the teams, which are facts of a
// communicator, are told as they are: no rank is reached by loads and stores from a program's kernel, so the
// team of those that are is a rank alone.
//
// nccl_device.h cannot be included without a CUDA compiler. The types below are those of its ABI.
#include "integrations/nccl/comm.hpp"
#include "integrations/nccl/result.hpp"

using namespace lockstep::nccl;

extern "C" {
#pragma GCC visibility push(default)

struct ncclTeam {
  int nRanks, rank, stride;
};

ncclTeam pncclTeamWorld(ncclComm_t comm);
ncclTeam pncclTeamLsa(ncclComm_t comm);
ncclTeam pncclTeamRail(ncclComm_t comm);
int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam team, int rank);
int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam team, int rank);
ncclResult_t pncclDevCommCreate(ncclComm_t comm, const void* requirements, void* made);
ncclResult_t pncclDevCommDestroy(ncclComm_t comm, const void* made);
ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam team, int barriers, void* handle, void* requirement);
ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t comm, ncclTeam team, int barriers, void* handle,
                                              void* requirement);
ncclResult_t pncclLLA2ACreateRequirement(int blocks, int slots, void* handle, void* requirement);
int pncclLLA2ACalcSlots(int elements, int element_bytes);

#pragma GCC visibility pop
}

namespace {

constexpr const char* kNoDeviceApi =
    "lockstep has no interface for kernels (nccl_device.h): use the collectives of nccl.h";

ncclResult_t refuse(const char* function) { return remember(ncclInvalidUsage, function, kNoDeviceApi); }

/// A team of no ranks when there is no such communicator.
template <typename Describe>
ncclTeam team_of(const char* function, ncclComm_t comm, Describe describe) {
  ncclTeam team{0, 0, 0};
  guarded(function, [&] { team = describe(*Handles::find(comm)); });
  return team;
}

}  // namespace

ncclTeam pncclTeamWorld(ncclComm_t comm) {
  return team_of("ncclTeamWorld", comm, [](ncclComm& c) { return ncclTeam{c.size(), c.rank(), 1}; });
}
LOCKSTEP_NCCL_ALIAS(TeamWorld);

ncclTeam pncclTeamLsa(ncclComm_t comm) {
  return team_of("ncclTeamLsa", comm, [](ncclComm& c) { return c.size(), ncclTeam{1, 0, 1}; });
}
LOCKSTEP_NCCL_ALIAS(TeamLsa);

ncclTeam pncclTeamRail(ncclComm_t comm) {
  return team_of("ncclTeamRail", comm, [](ncclComm& c) { return ncclTeam{c.size(), c.rank(), 1}; });
}
LOCKSTEP_NCCL_ALIAS(TeamRail);

// -1 when there is no such communicator.
int pncclTeamRankToWorld(ncclComm_t comm, ncclTeam team, int rank) {
  int world = -1;
  guarded("ncclTeamRankToWorld",
          [&] { world = Handles::find(comm)->rank() + (rank - team.rank) * team.stride; });
  return world;
}
LOCKSTEP_NCCL_ALIAS(TeamRankToWorld);

int pncclTeamRankToLsa(ncclComm_t comm, ncclTeam team, int rank) {
  int lsa = -1;
  guarded("ncclTeamRankToLsa", [&] {
    Handles::find(comm)->rank();
    lsa = (rank - team.rank) * team.stride;
  });
  return lsa;
}
LOCKSTEP_NCCL_ALIAS(TeamRankToLsa);

ncclResult_t pncclDevCommCreate(ncclComm_t, const void*, void*) { return refuse("ncclDevCommCreate"); }
LOCKSTEP_NCCL_ALIAS(DevCommCreate);

ncclResult_t pncclDevCommDestroy(ncclComm_t, const void*) { return refuse("ncclDevCommDestroy"); }
LOCKSTEP_NCCL_ALIAS(DevCommDestroy);

ncclResult_t pncclLsaBarrierCreateRequirement(ncclTeam, int, void*, void*) {
  return refuse("ncclLsaBarrierCreateRequirement");
}
LOCKSTEP_NCCL_ALIAS(LsaBarrierCreateRequirement);

ncclResult_t pncclGinBarrierCreateRequirement(ncclComm_t, ncclTeam, int, void*, void*) {
  return refuse("ncclGinBarrierCreateRequirement");
}
LOCKSTEP_NCCL_ALIAS(GinBarrierCreateRequirement);

ncclResult_t pncclLLA2ACreateRequirement(int, int, void*, void*) {
  return refuse("ncclLLA2ACreateRequirement");
}
LOCKSTEP_NCCL_ALIAS(LLA2ACreateRequirement);

// No slots, which the requirement would be refused for anyway.
int pncclLLA2ACalcSlots(int, int) {
  refuse("ncclLLA2ACalcSlots");
  return 0;
}
LOCKSTEP_NCCL_ALIAS(LLA2ACalcSlots);
