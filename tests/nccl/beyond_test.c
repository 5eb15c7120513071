/* Symbols beyond nccl.h: those of nccl_device.h, and those of later versions. Found as a plugin finds them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "ranks.h"

struct team {
  int ranks, rank, stride;
};

static const char* const later[] = {"CommGetUniqueId",
                                    "CommGrow",
                                    "CommMemStats",
                                    "CommQueryProperties",
                                    "CommResume",
                                    "CommSuspend",
                                    "GetLsaDevicePointer",
                                    "GetLsaMultimemDevicePointer",
                                    "GetMultimemDevicePointer",
                                    "GetPeerDevicePointer",
                                    "GinInboxA2ACreateRequirement",
                                    "GinOutboxCreateRequirement",
                                    "PutSignal",
                                    "Signal",
                                    "WaitSignal",
                                    "WinGetUserPtr",
                                    "ParamBind",
                                    "ParamDumpAll",
                                    "ParamGet",
                                    "ParamGetAllParameterKeys",
                                    "ParamGetI16",
                                    "ParamGetI32",
                                    "ParamGetI64",
                                    "ParamGetI8",
                                    "ParamGetParameter",
                                    "ParamGetStr",
                                    "ParamGetU16",
                                    "ParamGetU32",
                                    "ParamGetU64",
                                    "ParamGetU8"};
static const char* const for_kernels[] = {"DevCommCreate", "DevCommDestroy", "LsaBarrierCreateRequirement",
                                          "GinBarrierCreateRequirement", "LLA2ACreateRequirement"};

/* Both names of a function, which are one. */
static void* find(const char* name) {
  char with_nccl[64], with_pnccl[64];
  snprintf(with_nccl, sizeof with_nccl, "nccl%s", name);
  snprintf(with_pnccl, sizeof with_pnccl, "pnccl%s", name);
  void* const found = dlsym(RTLD_DEFAULT, with_nccl);
  CHECK(found != NULL && found == dlsym(RTLD_DEFAULT, with_pnccl), "%s", name);
  return found;
}

static void refusals(const char* const* names, size_t count, const char* word) {
  for (size_t i = 0; i < count; ++i) {
    ncclResult_t (*call)(void*, void*, void*, void*) =
        (ncclResult_t(*)(void*, void*, void*, void*))find(names[i]);
    check_refused(call(NULL, NULL, NULL, NULL), ncclInvalidUsage, word, names[i], __FILE__, __LINE__);
    CHECK(strstr(ncclGetLastError(NULL), names[i]) != NULL, "%s", ncclGetLastError(NULL));
  }
}

static void teams(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  const struct team world = ((struct team(*)(ncclComm_t))find("TeamWorld"))(comm);
  const struct team lsa = ((struct team(*)(ncclComm_t))find("TeamLsa"))(comm);
  const struct team rail = ((struct team(*)(ncclComm_t))find("TeamRail"))(comm);
  int (*to_world)(ncclComm_t, struct team, int) =
      (int (*)(ncclComm_t, struct team, int))find("TeamRankToWorld");
  int (*to_lsa)(ncclComm_t, struct team, int) = (int (*)(ncclComm_t, struct team, int))find("TeamRankToLsa");
  CHECK(world.ranks == ranks && world.rank == rank && world.stride == 1, "world");
  CHECK(lsa.ranks == 1 && lsa.rank == 0, "no kernel reaches another rank");
  CHECK(rail.ranks == ranks && rail.rank == rank, "rail");
  for (int other = 0; other < ranks; ++other) CHECK(to_world(comm, rail, other) == other, "rank %d", other);
  CHECK(to_world(comm, lsa, 0) == rank && to_lsa(comm, lsa, 0) == 0, "itself");
  CHECK(((struct team(*)(ncclComm_t))find("TeamWorld"))(NULL).ranks == 0, "a team of nobody");
  NCCL(ncclCommDestroy(comm));
}

static void symbols(int rank, int ranks) {
  (void)rank, (void)ranks;
  refusals(later, sizeof later / sizeof *later, "later version");
  refusals(for_kernels, sizeof for_kernels / sizeof *for_kernels, "kernels");
  CHECK(((int (*)(int, int))find("LLA2ACalcSlots"))(8, 8) == 0, "slots of nothing");
  ((void (*)(void))dlsym(RTLD_DEFAULT, "ncclResetDebugInitInternal"))();
}

int main(void) { return run_ranks("symbols", 1, symbols) + run_ranks("teams", 2, teams); }
