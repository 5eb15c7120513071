/* What blocks for other ranks, several on one communicator at once: in groups, and without blocking. */
#include <string.h>

#include "ranks.h"

enum { TIMES = 5, AT_ONCE = 4, BYTES = 1 << 20 };

static ncclComm_t connect_not_blocking(int rank, int ranks) {
  ncclConfig_t config = not_blocking();
  ncclUniqueId id;
  ncclComm_t comm;
  if (rank == 0) NCCL(ncclGetUniqueId(&id));
  share(0, rank, &id, sizeof id);
  CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress, "it waited");
  CHECK(await_state(comm) == ncclSuccess, "%s", ncclGetLastError(comm));
  return comm;
}

static void windows_in_a_group(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  ncclWindow_t windows[AT_ONCE];
  void* buffers[AT_ONCE];
  for (int i = 0; i < AT_ONCE; ++i) NCCL(ncclMemAlloc(&buffers[i], BYTES));
  for (int time = 0; time < TIMES; ++time) {
    NCCL(ncclGroupStart());
    for (int i = 0; i < AT_ONCE; ++i)
      NCCL(ncclCommWindowRegister(comm, buffers[i], BYTES, &windows[i], NCCL_WIN_COLL_SYMMETRIC));
    NCCL(ncclGroupEnd());
    NCCL(ncclAllReduce(buffers[0], buffers[1], BYTES, ncclInt8, ncclSum, comm, NULL));
    CUDA(cudaStreamSynchronize(NULL));
    for (int i = 0; i < AT_ONCE; ++i) NCCL(ncclCommWindowDeregister(comm, windows[i]));
  }
  check_works(comm, ranks, rank);
  for (int i = 0; i < AT_ONCE; ++i) NCCL(ncclMemFree(buffers[i]));
  NCCL(ncclCommDestroy(comm));
}

/* Child i has the ranks backwards if i is odd, so that children that were mixed up are found out. */
static void split_into(ncclComm_t comm, ncclComm_t* children, int rank) {
  for (int i = 0; i < AT_ONCE; ++i) {
    const ncclResult_t result = ncclCommSplit(comm, i, i % 2 == 0 ? rank : -rank, &children[i], NULL);
    CHECK(result == ncclSuccess || result == ncclInProgress, "%s", ncclGetLastError(comm));
  }
}

static void check_children(ncclComm_t* children, int rank, int ranks) {
  for (int i = 0; i < AT_ONCE; ++i) {
    check_works(children[i], ranks, i % 2 == 0 ? rank : ranks - 1 - rank);
    NCCL(ncclCommDestroy(children[i]));
  }
}

static void splits_in_a_group(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks), children[AT_ONCE];
  for (int time = 0; time < TIMES; ++time) {
    NCCL(ncclGroupStart());
    split_into(comm, children, rank);
    NCCL(ncclGroupEnd());
    check_children(children, rank, ranks);
  }
  NCCL(ncclCommDestroy(comm));
}

/* The parent is in progress until its children are there, as programs rely on. */
static void splits_in_a_row(int rank, int ranks) {
  ncclComm_t comm = connect_not_blocking(rank, ranks), children[AT_ONCE];
  for (int time = 0; time < TIMES; ++time) {
    ncclResult_t state;
    if (rank != 0) meet();
    split_into(comm, children, rank);
    if (rank == 0) {
      NCCL(ncclCommGetAsyncError(comm, &state));
      CHECK(state == ncclInProgress, "nobody else has called, and the state is %d", state);
      meet();
    }
    CHECK(await_state(comm) == ncclSuccess, "%s", ncclGetLastError(comm));
    check_children(children, rank, ranks);
  }
  NCCL(ncclCommDestroy(comm));
}

/* So it is where nothing comes of it but a window, or nothing at all; and it tells what went wrong. */
static void in_progress(int rank, int ranks) {
  ncclComm_t comm = connect_not_blocking(rank, ranks), none;
  ncclWindow_t window = NULL;
  ncclResult_t state;
  void* buffer;
  NCCL(ncclMemAlloc(&buffer, BYTES));
  if (rank != 0) meet();
  CHECK(ncclCommWindowRegister(comm, buffer, BYTES, &window, 0) == ncclInProgress, "it waited");
  CHECK(ncclCommSplit(comm, NCCL_SPLIT_NOCOLOR, 0, &none, NULL) == ncclInProgress, "it waited");
  NCCL(ncclCommGetAsyncError(comm, &state));
  CHECK(rank != 0 || state == ncclInProgress, "nobody else has called, and the state is %d", state);
  if (rank == 0) meet();
  CHECK(await_state(comm) == ncclSuccess, "%s", ncclGetLastError(comm));
  CHECK(window != NULL, "no window");
  NCCL(ncclCommWindowDeregister(comm, window));
  CHECK(ncclCommWindowRegister(comm, NULL, BYTES, &window, 0) == ncclInProgress, "it waited");
  CHECK(await_state(comm) == ncclInvalidArgument, "%s", ncclGetLastError(comm));
  CHECK(strstr(ncclGetLastError(comm), "nothing to register") != NULL, "%s", ncclGetLastError(comm));
  meet(); /* the other one's end would be heard first */
  NCCL(ncclMemFree(buffer));
  NCCL(ncclCommAbort(comm));
}

/* A communicator whose group was refused has failed; it does not begin for ever. */
static void refused_groups(int rank, int ranks) {
  ncclConfig_t config = not_blocking();
  ncclComm_t comm, blocking;
  ncclUniqueId id;
  (void)rank, (void)ranks;
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclGroupStart());
  NCCL(ncclCommInitRankConfig(&comm, 2, id, 0, &config));
  NCCL(ncclCommInitRank(&blocking, 2, id, 1));
  REFUSED(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument, "comm is NULL");
  CHECK(ncclGroupEnd() == ncclInvalidArgument, "the group forgot its error");
  CHECK(blocking == NULL, "a handle that stands for nothing");
  CHECK(await_state(comm) == ncclInvalidArgument, "the group was refused");
  CHECK(strstr(ncclGetLastError(comm), "dropped") != NULL, "%s", ncclGetLastError(comm));
  NCCL(ncclCommAbort(comm));
}

int main(void) {
  return run_ranks("windows in a group", 3, windows_in_a_group) +
         run_ranks("splits in a group", 3, splits_in_a_group) +
         run_ranks("splits in a row, not blocking", 3, splits_in_a_row) +
         run_ranks("in progress", 2, in_progress) + run_ranks("refused groups", 1, refused_groups);
}
