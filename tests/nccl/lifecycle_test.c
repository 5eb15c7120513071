/* Communicators: every way in, what comes out of them, every way out. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"

static ncclUniqueId shared_id(int rank, int from) {
  ncclUniqueId id;
  if (rank == from) NCCL(ncclGetUniqueId(&id));
  share(from, rank, &id, sizeof id);
  return id;
}

static void rank_and_config(int rank, int ranks) {
  ncclComm_t comm;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int device = -1;
  config.commName = "a name";
  config.maxCTAs = 4; /* has no effect */
  NCCL(ncclCommInitRankConfig(&comm, ranks, shared_id(rank, ranks - 1), rank, &config));
  check_works(comm, ranks, rank);
  NCCL(ncclCommCuDevice(comm, &device));
  CHECK(device == device_of(rank), "device %d", device);
  NCCL(ncclCommFinalize(comm));
  REFUSED(ncclBcast(NULL, 0, ncclInt8, 0, comm, NULL), ncclInvalidUsage, "finalized");
  NCCL(ncclCommDestroy(comm));
  NCCL(ncclCommInitRankConfig(&comm, ranks, shared_id(rank, 0), rank, NULL));
  check_works(comm, ranks, rank);
  NCCL(ncclCommDestroy(comm));
}

static void several_ids(int rank, int ranks) {
  ncclComm_t comm;
  ncclUniqueId ids[2] = {shared_id(rank, 0), shared_id(rank, ranks - 1)};
  NCCL(ncclCommInitRankScalable(&comm, ranks, rank, 2, ids, NULL));
  check_works(comm, ranks, rank);
  NCCL(ncclCommDestroy(comm));
}

static void without_blocking(int rank, int ranks) {
  ncclComm_t comm, half;
  ncclConfig_t config = not_blocking();
  const ncclUniqueId id = shared_id(rank, 0);
  if (rank == 0) {
    CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress, "it waited");
    int count;
    REFUSED(ncclCommCount(comm, &count), ncclInvalidArgument,
            "ncclInProgress"); /* the others are not there */
    meet();
  } else {
    meet();
    CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress, "it waited");
  }
  CHECK(await_state(comm) == ncclSuccess, "%s", ncclGetLastError(comm));
  check_works(comm, ranks, rank);
  CHECK(ncclCommSplit(comm, rank % 2, 0, &half, NULL) == ncclInProgress, "it waited");
  CHECK(await_state(half) == ncclSuccess, "%s", ncclGetLastError(half));
  check_works(half, (ranks + 1 - rank % 2) / 2, rank / 2);
  CHECK(ncclCommFinalize(half) == ncclInProgress, "it waited");
  CHECK(await_state(half) == ncclSuccess, "%s", ncclGetLastError(half));
  NCCL(ncclCommDestroy(half));
  NCCL(ncclCommDestroy(comm));
}

static void split(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks), reversed, part, grandchild;
  NCCL(ncclCommSplit(comm, 7, -rank, &reversed, NULL));
  check_works(reversed, ranks, ranks - 1 - rank);
  NCCL(ncclCommSplit(comm, rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, rank, &part, NULL));
  CHECK((part == NULL) == (rank == 0), "who asked for no part has %p", (void*)part);
  NCCL(ncclCommDestroy(comm)); /* children outlive their parents */
  if (part != NULL) {
    check_works(part, ranks - 1, rank - 1);
    NCCL(ncclCommSplit(part, 0, rank, &grandchild, NULL));
    check_works(grandchild, ranks - 1, rank - 1);
    NCCL(ncclCommDestroy(part));
    NCCL(ncclCommDestroy(grandchild));
  }
  check_works(reversed, ranks, ranks - 1 - rank);
  NCCL(ncclCommDestroy(reversed));
}

static void shrink(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks), fewer;
  int excluded = 0;
  if (rank != excluded) {
    NCCL(ncclCommShrink(comm, &excluded, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
    check_works(fewer, ranks - 1, rank - 1);
    ncclComm_t none;
    REFUSED(ncclCommShrink(comm, &excluded, 1, &none, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidUsage, "before");
    CHECK(none == NULL, "a refused call gave a communicator");
    NCCL(ncclCommDestroy(fewer));
  } else {
    REFUSED(ncclCommShrink(comm, &excluded, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidArgument,
            "this rank");
  }
  NCCL(ncclCommDestroy(comm));
}

static void revoke_one(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks), again;
  ncclResult_t state;
  char* byte;
  CUDA(cudaMalloc((void**)&byte, 1));
  if (rank == 0)
    NCCL(ncclAllReduce(byte, byte, 1, ncclInt8, ncclSum, comm, NULL)); /* the others never come */
  NCCL(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
  CUDA(cudaStreamSynchronize(NULL)); /* and yet the stream goes on */
  NCCL(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclSuccess, "revoked, and %d", state);
  REFUSED(ncclAllReduce(byte, byte, 1, ncclInt8, ncclSum, comm, NULL), ncclInvalidUsage, "revoked");
  REFUSED(ncclCommFinalize(comm), ncclInvalidUsage, "revoked");
  meet();
  NCCL(ncclCommSplit(comm, 0, rank, &again, NULL));
  check_works(again, ranks, rank);
  NCCL(ncclCommDestroy(again));
  NCCL(ncclCommDestroy(comm));
  CUDA(cudaFree(byte));
}

static void abort_in_flight(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  char* byte;
  CUDA(cudaMalloc((void**)&byte, 1));
  if (rank == 0) {
    NCCL(ncclBroadcast(byte, byte, 1, ncclInt8, 1, comm, NULL)); /* waits for a rank that aborts */
    meet();
    CUDA(cudaStreamSynchronize(NULL));
    const ncclResult_t state = await_failure(comm);
    CHECK(state == ncclRemoteError, "%d: %s", state, ncclGetLastError(comm));
    CHECK(strstr(ncclGetLastError(comm), "abort") != NULL, "%s", ncclGetLastError(comm));
  } else {
    meet();
  }
  NCCL(ncclCommAbort(comm));
  REFUSED(ncclCommDestroy(comm), ncclInvalidArgument, "destroyed");
  CUDA(cudaFree(byte));
}

/* The program's handlers run on the program's threads: every other takes no signals. */
static void check_signals(void) {
  DIR* const threads = opendir("/proc/self/task");
  int found = 0;
  for (struct dirent* one; (one = readdir(threads)) != NULL;) {
    char path[300], line[200];
    unsigned long long blocked = 0;
    const int thread = atoi(one->d_name);
    int seen = 0;
    if (thread == 0 || thread == getpid()) continue;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", thread);
    FILE* const status = fopen(path, "r");
    if (status == NULL) continue; /* it has ended */
    while (fgets(line, sizeof line, status) != NULL) seen += sscanf(line, "SigBlk: %llx", &blocked) == 1;
    fclose(status);
    if (seen == 0) continue;
    CHECK(blocked >> (SIGUSR1 - 1) & 1, "thread %d blocks %llx", thread, blocked);
    ++found;
  }
  closedir(threads);
  CHECK(found > 0, "no thread of the library");
}

static void signals(int rank, int ranks) {
  ncclConfig_t config = not_blocking();
  ncclComm_t comm;
  const ncclUniqueId id = shared_id(rank, 0);
  if (rank == 0) {
    CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress, "it waited");
    usleep(100000); /* A thread that waits for the other rank takes on its mask when it starts. */
    check_signals();
  }
  meet();
  if (rank != 0)
    CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress, "it waited");
  CHECK(await_state(comm) == ncclSuccess, "%s", ncclGetLastError(comm));
  check_works(comm, ranks, rank);
  check_signals();
  NCCL(ncclCommDestroy(comm));
}

/* Several ranks of one process: made by one call, used in groups by one thread, ended one after the other. */
static void one_process(int rank, int ranks) {
  enum { DEVICES = 3 };
  ncclComm_t comms[DEVICES];
  int devices[DEVICES], count, *numbers[DEVICES];
  cudaStream_t
      streams[DEVICES]; /* one for each: on one device a stream holds one rank's call before another's */
  (void)rank, (void)ranks;
  CUDA(cudaGetDeviceCount(&count));
  for (int i = 0; i < DEVICES; ++i) devices[i] = i % count;
  NCCL(ncclCommInitAll(comms, DEVICES, devices));
  for (int i = 0; i < DEVICES; ++i) {
    CUDA(cudaSetDevice(devices[i]));
    CUDA(cudaStreamCreate(&streams[i]));
    CUDA(cudaMalloc((void**)&numbers[i], sizeof(int)));
    CUDA(cudaMemcpy(numbers[i], &i, sizeof i, cudaMemcpyHostToDevice));
  }
  NCCL(ncclGroupStart());
  for (int i = 0; i < DEVICES; ++i) {
    CUDA(cudaSetDevice(devices[i]));
    NCCL(ncclAllReduce(numbers[i], numbers[i], 1, ncclInt32, ncclSum, comms[i], streams[i]));
  }
  NCCL(ncclGroupEnd());
  for (int i = 0; i < DEVICES; ++i) {
    CUDA(cudaSetDevice(devices[i]));
    CUDA(cudaStreamSynchronize(streams[i]));
    CUDA(cudaStreamDestroy(streams[i]));
  }
  for (int i = 0; i < DEVICES; ++i) {
    int sum = -1;
    CUDA(cudaSetDevice(devices[i]));
    CUDA(cudaMemcpy(&sum, numbers[i], sizeof sum, cudaMemcpyDeviceToHost));
    CHECK(sum == 3, "rank %d has %d", i, sum);
    CUDA(cudaFree(numbers[i]));
  }
  for (int i = 0; i < DEVICES; ++i) NCCL(ncclCommFinalize(comms[i]));
  for (int i = 0; i < DEVICES; ++i) NCCL(ncclCommDestroy(comms[i]));
}

static void group_of_ranks(int rank, int ranks) {
  enum { DEVICES = 2 };
  ncclComm_t comms[DEVICES] = {NULL, NULL};
  ncclUniqueId id;
  (void)rank, (void)ranks;
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclGroupStart());
  for (int i = 0; i < DEVICES; ++i) {
    CUDA(cudaSetDevice(device_of(i)));
    NCCL(ncclCommInitRank(&comms[i], DEVICES, id, i));
  }
  NCCL(ncclGroupEnd());
  for (int i = 0; i < DEVICES; ++i) {
    int found = -1;
    NCCL(ncclCommUserRank(comms[i], &found));
    CHECK(found == i, "rank %d", found);
  }
  for (int i = 0; i < DEVICES; ++i) NCCL(ncclCommDestroy(comms[i]));
}

int main(void) {
  return run_ranks("rank and config", 2, rank_and_config) + run_ranks("several ids", 3, several_ids) +
         run_ranks("not blocking", 3, without_blocking) + run_ranks("split", 3, split) +
         run_ranks("shrink", 3, shrink) + run_ranks("revoke", 2, revoke_one) +
         run_ranks("abort in flight", 2, abort_in_flight) + run_ranks("signals", 2, signals) +
         run_ranks("one process", 1, one_process) + run_ranks("group of ranks", 1, group_of_ranks);
}
