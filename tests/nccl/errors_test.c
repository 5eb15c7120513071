/* What is refused, how it is said, and what a killed rank does to the others. */
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

static void calls(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  ncclRedOp_t op;
  void *memory, *handle;
  float half = 0.5f;
  NCCL(ncclMemAlloc(&memory, 4096));
  REFUSED(ncclAllReduce(memory, memory, 1, ncclNumTypes, ncclSum, comm, NULL), ncclInvalidArgument,
          "datatype");
  REFUSED(ncclAllReduce(memory, memory, 1, ncclFloat, ncclNumOps, comm, NULL), ncclInvalidArgument,
          "operator");
  REFUSED(ncclRedOpCreatePreMulSum(&op, &half, ncclInt32, ncclScalarHostImmediate, comm), ncclInvalidUsage,
          "floating-point");
  REFUSED(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat, ncclScalarHostImmediate, comm), ncclInvalidArgument,
          "scalar");
  NCCL(ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, comm));
  CHECK(op >= ncclNumOps, "a built-in operator's number: %d", op);
  REFUSED(ncclAllReduce(memory, memory, 1, ncclDouble, op, comm, NULL), ncclInvalidArgument,
          "another datatype");
  NCCL(ncclRedOpDestroy(op, comm));
  REFUSED(ncclRedOpDestroy(op, comm), ncclInvalidArgument, "operator");
  REFUSED(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument, "operator");
  REFUSED(ncclCommRegister(comm, NULL, 1, &handle), ncclInvalidArgument, "nothing to register");
  REFUSED(ncclCommDeregister(comm, memory), ncclInvalidArgument, "handle");
  NCCL(ncclCommDeregister(comm, NULL));
  REFUSED(ncclMemAlloc(NULL, 1), ncclInvalidArgument, "ptr is NULL");
  REFUSED(ncclMemFree(&half), ncclInvalidArgument, "allocate");
  NCCL(ncclMemFree(NULL));
  NCCL(ncclMemFree(memory));
  NCCL(ncclCommDestroy(comm));
}

/* Ranks that call different things all learn it, and what each of them called. */
static void mismatch(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  ncclResult_t state = ncclSuccess;
  float* data;
  NCCL(ncclMemAlloc((void**)&data, 4096));
  ncclAllReduce(data, data, rank == 0 ? 7 : 8, ncclFloat, ncclSum, comm, NULL);
  CUDA(cudaStreamSynchronize(NULL));
  while (state == ncclSuccess) NCCL(ncclCommGetAsyncError(comm, &state));
  CHECK(state == ncclInvalidUsage, "%d: %s", state, ncclGetLastError(comm));
  CHECK(strstr(ncclGetLastError(comm), "7") != NULL && strstr(ncclGetLastError(comm), "8") != NULL, "%s",
        ncclGetLastError(comm));
  CHECK(ncclAllReduce(data, data, 1, ncclFloat, ncclSum, comm, NULL) == ncclInvalidUsage, "it goes on");
  NCCL(ncclCommAbort(comm));
  NCCL(ncclMemFree(data));
}

/* The others' streams go on, they learn who it was, and are a smaller group in the end. */
static void killed(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks), fewer;
  ncclResult_t state = ncclSuccess;
  int gone = ranks - 1, number = 1, *sum;
  CUDA(cudaMalloc((void**)&sum, sizeof *sum));
  meet();
  if (rank == gone) kill(getpid(), SIGKILL);
  /* The call already tells, if the loss was noticed before it. */
  const ncclResult_t started = ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, comm, NULL);
  CHECK(started == ncclSuccess || started == ncclRemoteError, "%d: %s", started, ncclGetLastError(comm));
  CUDA(cudaStreamSynchronize(NULL));
  while (state == ncclSuccess) NCCL(ncclCommGetAsyncError(comm, &state));
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
  CUDA(cudaFree(sum));
}

int main(void) {
  int failures = run_ranks("arguments", 1, arguments) + run_ranks("calls", 1, calls) +
                 run_ranks("mismatch", 2, mismatch);
  expected_signal = SIGKILL;
  return failures + run_ranks("killed", 3, killed);
}
