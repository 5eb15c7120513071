/* What is refused, how it is said, and what a killed rank does to the others. */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "ranks.h"

static void arguments(int rank, int ranks) {
  ncclComm_t comm = NULL, good;
  ncclUniqueId id, foreign;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  int number;
  (void)rank, (void)ranks;
  NCCL(ncclGetUniqueId(&id));
  REFUSED(ncclGetUniqueId(NULL), ncclInvalidArgument, "uniqueId is NULL");
  REFUSED(ncclCommInitRank(NULL, 1, id, 0), ncclInvalidArgument, "comm is NULL");
  REFUSED(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument, "nranks");
  REFUSED(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument, "rank 2");
  memset(&foreign, 17, sizeof foreign);
  REFUSED(ncclCommInitRank(&comm, 1, foreign, 0), ncclInvalidArgument, "another NCCL library");
  foreign = id;
  foreign.internal[100] ^= 1;
  REFUSED(ncclCommInitRank(&comm, 1, foreign, 0), ncclInvalidArgument, "damaged");
  REFUSED(ncclCommInitRankScalable(&comm, 1, 0, 2, &id, NULL), ncclInvalidArgument, "nId");
  config.magic = 1;
  REFUSED(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
  config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  config.size = 16; /* without `blocking`: no version was that small */
  REFUSED(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "NCCL_CONFIG_INITIALIZER");
  config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  config.blocking = 2;
  REFUSED(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "blocking");
  config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 8, config.maxCTAs = 4;
  REFUSED(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument, "minCTAs");
  CHECK(comm == NULL, "a refused call gave a communicator");
  REFUSED(ncclCommInitAll(&comm, 0, NULL), ncclInvalidArgument, "ndev");
  number = 1 << 20;
  REFUSED(ncclCommInitAll(&comm, 1, &number), ncclInvalidArgument, "device");
  NCCL(ncclCommInitRank(&good, 1, id, 0));
  REFUSED(ncclCommCount(NULL, &number), ncclInvalidArgument, "NULL");
  REFUSED(ncclCommCount((ncclComm_t)&number, &number), ncclInvalidArgument, "not made by this library");
  REFUSED(ncclCommCount(good, NULL), ncclInvalidArgument, "count is NULL");
  REFUSED(ncclCommSplit(good, -2, 0, &comm, NULL), ncclInvalidArgument, "color");
  REFUSED(ncclCommShrink(good, NULL, 0, &comm, NULL, 0), ncclInvalidArgument, "exclude");
  REFUSED(ncclCommShrink(good, &number, 1, &comm, NULL, 8), ncclInvalidArgument, "shrinkFlags");
  REFUSED(ncclCommRevoke(good, 1), ncclInvalidArgument, "revokeFlags");
  NCCL(ncclCommDestroy(good));
  NCCL(ncclCommDestroy(NULL));
  NCCL(ncclCommAbort(NULL));
}

static void accepted(ncclConfig_t config, size_t size, unsigned int version) {
  ncclUniqueId id;
  ncclComm_t comm;
  config.size = size, config.version = version;
  NCCL(ncclGetUniqueId(&id));
  NCCL(ncclCommInitRankConfig(&comm, 1, id, 0, &config));
  NCCL(ncclCommDestroy(comm));
}

/* Older headers' configs end with padding where later ones have a field: its bytes may be anything. */
static void older_configs(int rank, int ranks) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  (void)rank, (void)ranks;
  config.cgaClusterSize = -7;
  accepted(config, 24, NCCL_VERSION(2, 14, 0));
  config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
  config.trafficClass = -7;
  accepted(config, 48, NCCL_VERSION(2, 21, 0));
  accepted(config, sizeof config, NCCL_VERSION_CODE); /* of a field NCCL does not check it either */
}

static int open_descriptors(void) {
  int found = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != NULL) ++found;
  closedir(folder);
  return found;
}

/* Its rank waits for one that never comes. */
static void begin_in_vain(void) {
  ncclUniqueId id;
  ncclComm_t comm;
  NCCL(ncclGetUniqueId(&id));
  REFUSED(ncclCommInitRank(&comm, 2, id, 0), ncclRemoteError, "1");
}

/* Nothing is left of the places where the ranks were to meet. Connections may take a moment to end. */
static void failed_beginnings(int rank, int ranks) {
  enum { TIMES = 8 };
  (void)rank, (void)ranks;
  setenv("LOCKSTEP_START_TIMEOUT", "100ms", 1);
  begin_in_vain();
  const int before = open_descriptors();
  for (int time = 0; time < TIMES; ++time) begin_in_vain();
  while (open_descriptors() - before >= TIMES) usleep(1000); /* as long as the test may take */
  unsetenv("LOCKSTEP_START_TIMEOUT");
}

/* Of several ids the ranks meet at the first: nothing is left of the others either. */
static void several_ids(int rank, int ranks) {
  enum { TIMES = 8, IDS = 3 };
  (void)rank, (void)ranks;
  int before = 0;
  for (int time = 0; time <= TIMES; ++time) {
    ncclUniqueId ids[IDS];
    ncclComm_t comms[IDS];
    for (int i = 0; i < IDS; ++i) NCCL(ncclGetUniqueId(&ids[i]));
    NCCL(ncclGroupStart());
    for (int i = 0; i < IDS; ++i) NCCL(ncclCommInitRankScalable(&comms[i], IDS, i, IDS, ids, NULL));
    NCCL(ncclGroupEnd());
    for (int i = 0; i < IDS; ++i) NCCL(ncclCommDestroy(comms[i]));
    if (time == 0) before = open_descriptors();
  }
  while (open_descriptors() - before >= TIMES) usleep(1000); /* as long as the test may take */
}

/* Which of the ranks in a process failed. */
static void one_of_all(int rank, int ranks) {
  ncclComm_t comms[2];
  const int devices[2] = {0, 0};
  (void)rank, (void)ranks;
  setenv("LOCKSTEP_DEVICE_STAGING", "4096T", 1); /* more than there is */
  REFUSED(ncclCommInitAll(comms, 2, devices), ncclSystemError, "ncclCommInitAll: rank 0: ");
  unsetenv("LOCKSTEP_DEVICE_STAGING");
}

static void calls(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  ncclRedOp_t op;
  void *memory, *handle;
  float half = 0.5f;
  long long large = -(1LL << 53);
  NCCL(ncclMemAlloc(&memory, 4096));
  REFUSED(ncclAllReduce(memory, memory, 1, ncclNumTypes, ncclSum, comm, NULL), ncclInvalidArgument,
          "datatype");
  REFUSED(ncclAllReduce(memory, memory, 1, ncclFloat, ncclNumOps, comm, NULL), ncclInvalidArgument,
          "operator");
  REFUSED(ncclRedOpCreatePreMulSum(&op, &large, ncclInt64, ncclScalarHostImmediate, comm), ncclInvalidUsage,
          "2^53");
  REFUSED(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comm), ncclInvalidArgument,
          "scalar");
  REFUSED(ncclRedOpCreatePreMulSum(&op, memory, ncclNumTypes, ncclScalarDevice, comm), ncclInvalidArgument,
          "datatype");
  NCCL(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, comm));
  CHECK(op >= ncclNumOps, "a built-in operator's number: %d", op);
  REFUSED(ncclAllReduce(memory, memory, 1, ncclDouble, op, comm, NULL), ncclInvalidArgument,
          "another datatype");
  NCCL(ncclRedOpDestroy(op, comm));
  REFUSED(ncclRedOpDestroy(op, comm), ncclInvalidArgument, "operator");
  REFUSED(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument, "operator");
  CHECK(ncclMemAlloc(NULL, 1) == ncclInvalidArgument, "memory for nobody");
  CHECK(strstr(ncclGetLastError((ncclComm_t)&half), "ncclMemAlloc") != NULL, "not the last text: %s",
        ncclGetLastError((ncclComm_t)&half));
  REFUSED(ncclCommRegister(comm, NULL, 1, &handle), ncclInvalidArgument, "nothing to register");
  REFUSED(ncclCommDeregister(comm, memory), ncclInvalidArgument, "handle");
  NCCL(ncclCommDeregister(comm, NULL));
  NCCL(ncclCommRegister(comm, memory, 4096, &handle));
  NCCL(ncclCommDeregister(comm, handle));
  REFUSED(ncclCommDeregister(comm, handle), ncclInvalidArgument, "none of this communicator's registrations");
  REFUSED(ncclMemAlloc(NULL, 1), ncclInvalidArgument, "ptr is NULL");
  REFUSED(ncclMemFree(&half), ncclInvalidArgument, "allocate");
  handle = &half;
  NCCL(ncclMemAlloc(&handle, 0));
  CHECK(handle == NULL, "nothing is somewhere");
  NCCL(ncclMemFree(NULL));
  NCCL(ncclMemFree(memory));
  NCCL(ncclCommDestroy(comm));
}

/* An operator is of no use on another communicator, nor one that was destroyed when others were made. */
static void foreign_operators(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks), other = connect_ranks(rank, ranks);
  ncclRedOp_t op, others_op;
  float half = 0.5f, *data;
  NCCL(ncclMemAlloc((void**)&data, 4096));
  REFUSED(ncclRedOpCreatePreMulSum(NULL, &half, ncclFloat, ncclScalarHostImmediate, comm),
          ncclInvalidArgument, "op is NULL");
  NCCL(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, comm));
  NCCL(ncclRedOpCreatePreMulSum(&others_op, &half, ncclFloat, ncclScalarHostImmediate, other));
  CHECK(op != others_op, "one handle for two operators");
  REFUSED(ncclAllReduce(data, data, 1, ncclFloat, others_op, comm, NULL), ncclInvalidArgument,
          "made on this communicator");
  REFUSED(ncclRedOpDestroy(op, other), ncclInvalidArgument, "made on this communicator");
  NCCL(ncclAllReduce(data, data, 1, ncclFloat, op, comm, NULL));
  NCCL(ncclRedOpDestroy(op, comm));
  NCCL(ncclRedOpCreatePreMulSum(&others_op, &half, ncclFloat, ncclScalarHostImmediate, comm));
  REFUSED(ncclAllReduce(data, data, 1, ncclFloat, op, comm, NULL), ncclInvalidArgument, "lives");
  CUDA(cudaStreamSynchronize(NULL));
  NCCL(ncclMemFree(data));
  NCCL(ncclCommDestroy(comm));
  NCCL(ncclCommDestroy(other));
}

/* What a rank can see by itself is refused before anything is started: the communicator goes on. */
static void refused_here(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  char* memory;
  NCCL(ncclMemAlloc((void**)&memory, 4096));
  void* const odd = memory + 2;
  if (rank == 0) {
    REFUSED(ncclBcast(memory, 1, ncclInt32, ranks, comm, NULL), ncclInvalidArgument, "root 2");
    REFUSED(ncclReduce(memory, memory, 0, ncclInt32, ncclSum, -1, comm, NULL), ncclInvalidArgument,
            "root -1");
    REFUSED(ncclAllReduce(NULL, memory, 1, ncclInt32, ncclSum, comm, NULL), ncclInvalidArgument,
            "sendbuff is NULL");
    REFUSED(ncclReduceScatter(memory, NULL, 1, ncclInt32, ncclSum, comm, NULL), ncclInvalidArgument,
            "recvbuff is NULL");
    REFUSED(ncclBroadcast(memory, NULL, 1, ncclInt32, 0, comm, NULL), ncclInvalidArgument,
            "recvbuff is NULL");
    REFUSED(ncclAllGather(odd, memory, 1, ncclInt32, comm, NULL), ncclInvalidArgument, "aligned");
    REFUSED(ncclAlltoAll(odd, odd, 1, ncclInt32, comm, NULL), ncclInvalidArgument, "aligned");
    REFUSED(ncclSend(odd, 1, ncclInt32, 1, comm, NULL), ncclInvalidArgument, "aligned");
    REFUSED(ncclRecv(NULL, 1, ncclInt32, 1, comm, NULL), ncclInvalidArgument, "NULL");
    REFUSED(ncclSend(NULL, 0, ncclInt32, ranks, comm, NULL), ncclInvalidArgument, "peer 2");
    REFUSED(ncclSend(&rank, 1, ncclInt32, 1, comm, NULL), ncclInvalidArgument, "not memory of a device");
    REFUSED(ncclRecv(&rank, 1, ncclInt32, 1, comm, NULL), ncclInvalidArgument, "not memory of a device");
    REFUSED(ncclAllReduce(memory, memory, (size_t)-1, ncclInt32, ncclSum, comm, NULL), ncclInvalidArgument,
            "more than memory holds");
    NCCL(ncclGroupStart());
    NCCL(ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, comm, NULL));
    REFUSED(ncclScatter(NULL, memory, 1, ncclInt32, 0, comm, NULL), ncclInvalidArgument, "sendbuff is NULL");
    CHECK(ncclGroupEnd() == ncclInvalidArgument, "the group forgot its error");
  }
  /* Who is not the root may leave out what only the root has. */
  NCCL(ncclReduce(memory, rank == 0 ? memory : NULL, 1, ncclInt32, ncclSum, 0, comm, NULL));
  NCCL(ncclBroadcast(rank == 0 ? memory : NULL, memory, 1, ncclInt32, 0, comm, NULL));
  CUDA(cudaStreamSynchronize(NULL));
  check_works(comm, ranks, rank);
  NCCL(ncclMemFree(memory));
  NCCL(ncclCommDestroy(comm));
}

/* What is found out when the call is started is told to all. */
static void refused_everywhere(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  int* data;
  NCCL(ncclMemAlloc((void**)&data, 4096));
  if (rank == 0) {
    REFUSED(ncclAllReduce(data, data + 1, 8, ncclInt32, ncclSum, comm, NULL), ncclInvalidArgument, "overlap");
  } else {
    NCCL(ncclAllReduce(data, data, 8, ncclInt32, ncclSum, comm, NULL));
    CUDA(cudaStreamSynchronize(NULL));
  }
  const ncclResult_t state = await_failure(comm);
  /* Rank 0 may hear of itself from the others first. */
  CHECK(state == ncclInvalidUsage || (rank == 0 && state == ncclInvalidArgument), "%d: %s", state,
        ncclGetLastError(comm));
  meet();
  NCCL(ncclCommAbort(comm));
  NCCL(ncclMemFree(data));
}

/* Ranks that call different things all learn it, and what each of them called. */
static void mismatch(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  float* data;
  NCCL(ncclMemAlloc((void**)&data, 4096));
  ncclAllReduce(data, data, rank == 0 ? 7 : 8, ncclFloat, ncclSum, comm, NULL);
  CUDA(cudaStreamSynchronize(NULL));
  const ncclResult_t state = await_failure(comm);
  CHECK(state == ncclInvalidUsage, "%d: %s", state, ncclGetLastError(comm));
  CHECK(strstr(ncclGetLastError(comm), "7") != NULL && strstr(ncclGetLastError(comm), "8") != NULL, "%s",
        ncclGetLastError(comm));
  CHECK(ncclAllReduce(data, data, 1, ncclFloat, ncclSum, comm, NULL) == ncclInvalidUsage, "it goes on");
  NCCL(ncclCommAbort(comm));
  NCCL(ncclMemFree(data));
}

/* The others' streams go on, they learn who it was, and are a smaller group in the end. */
static void killed(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks), unused, fewer;
  int gone = ranks - 1, number = 1, *sum;
  NCCL(ncclCommSplit(comm, 0, rank, &unused, NULL));
  CUDA(cudaMalloc((void**)&sum, sizeof *sum));
  meet();
  if (rank == gone) kill(getpid(), SIGKILL);
  /* The call already tells, if the loss was noticed before it. */
  const ncclResult_t started = ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, comm, NULL);
  CHECK(started == ncclSuccess || started == ncclRemoteError, "%d: %s", started, ncclGetLastError(comm));
  CUDA(cudaStreamSynchronize(NULL));
  const ncclResult_t state = await_failure(comm);
  CHECK(state == ncclRemoteError, "%d: %s", state, ncclGetLastError(comm));
  CHECK(strstr(ncclGetLastError(comm), "rank 2") != NULL, "%s", ncclGetLastError(comm));
  REFUSED(ncclCommShrink(comm, &gone, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT), ncclInvalidUsage,
          "NCCL_SHRINK_ABORT");
  NCCL(ncclCommShrink(comm, &gone, 1, &fewer, NULL, NCCL_SHRINK_ABORT));
  CUDA(cudaMemcpy(sum, &number, sizeof number, cudaMemcpyHostToDevice));
  NCCL(ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, fewer, NULL));
  CUDA(cudaStreamSynchronize(NULL));
  CUDA(cudaMemcpy(&number, sum, sizeof number, cudaMemcpyDeviceToHost));
  CHECK(number == ranks - 1, "the survivors' sum is %d", number);
  NCCL(ncclCommDestroy(fewer));
  NCCL(ncclCommDestroy(comm));
  REFUSED(ncclCommFinalize(unused), ncclRemoteError, "rank 2");
  NCCL(ncclCommDestroy(unused));
  CUDA(cudaFree(sum));
}

int main(void) {
  int failures = run_ranks("arguments", 1, arguments) + run_ranks("older configs", 1, older_configs) +
                 run_ranks("failed beginnings", 1, failed_beginnings) +
                 run_ranks("several ids", 1, several_ids) + run_ranks("one of all", 1, one_of_all) +
                 run_ranks("calls", 1, calls) + run_ranks("foreign operators", 1, foreign_operators) +
                 run_ranks("refused here", 2, refused_here) +
                 run_ranks("refused everywhere", 2, refused_everywhere) + run_ranks("mismatch", 2, mismatch);
  expected_signal = SIGKILL;
  return failures + run_ranks("killed", 3, killed);
}
