/* Allocation, registration, windows; versions, texts, and the interface for kernels. */
#include <string.h>

#include "ranks.h"

const char* lockstep_nccl_version(void);

static void sum_of(ncclComm_t comm, const int* in, int* out, size_t count, int rank, int ranks) {
  int* host = malloc(count * sizeof(int));
  for (size_t i = 0; i < count; ++i) host[i] = rank + (int)i;
  CUDA(cudaMemcpy((void*)in, host, count * sizeof(int), cudaMemcpyHostToDevice));
  NCCL(ncclAllReduce(in, out, count, ncclInt32, ncclSum, comm, NULL));
  CUDA(cudaStreamSynchronize(NULL));
  CUDA(cudaMemcpy(host, out, count * sizeof(int), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < count; ++i)
    CHECK(host[i] == ranks * (ranks - 1) / 2 + ranks * (int)i, "sum %zu is %d", i, host[i]);
  free(host);
}

static void registered(int rank, int ranks) {
  enum { COUNT = 100003 };
  const size_t bytes = COUNT * sizeof(int);
  ncclComm_t comm = connect_ranks(rank, ranks);
  void *in, *out, *first, *second;
  NCCL(ncclMemAlloc(&in, bytes));
  NCCL(ncclMemAlloc(&out, bytes));
  NCCL(ncclCommRegister(comm, in, bytes, &first));
  NCCL(ncclCommRegister(comm, in, bytes, &second)); /* twice is fine */
  CHECK(first != NULL && second != NULL, "no handle");
  if (rank == 0) NCCL(ncclCommRegister(comm, out, bytes, &first)); /* only here: all ranks take another way */
  sum_of(comm, in, out, COUNT, rank, ranks);
  sum_of(comm, in, in, COUNT, rank, ranks);
  NCCL(ncclCommDeregister(comm, first));
  sum_of(comm, in, out, COUNT, rank, ranks);
  NCCL(ncclCommDeregister(comm, second));
  NCCL(ncclMemFree(in));
  NCCL(ncclMemFree(out));
  NCCL(ncclCommDestroy(comm));
}

static void windows(int rank, int ranks) {
  enum { COUNT = 1 << 15 };
  const size_t bytes = COUNT * sizeof(int);
  ncclComm_t comm = connect_ranks(rank, ranks);
  ncclWindow_t in_window, out_window;
  void *in, *out;
  NCCL(ncclMemAlloc(&in, bytes));
  NCCL(ncclMemAlloc(&out, bytes));
  REFUSED(ncclCommWindowRegister(comm, in, bytes, &in_window, 64), ncclInvalidArgument, "winFlags");
  NCCL(ncclCommWindowRegister(comm, in, bytes, &in_window, NCCL_WIN_COLL_SYMMETRIC));
  NCCL(ncclGroupStart());
  NCCL(ncclCommWindowRegister(comm, out, bytes, &out_window, NCCL_WIN_DEFAULT));
  NCCL(ncclGroupEnd());
  CHECK(in_window != NULL && out_window != NULL, "no window");
  sum_of(comm, in, out, COUNT, rank, ranks);
  NCCL(ncclCommWindowDeregister(comm, in_window));
  NCCL(ncclCommWindowDeregister(comm, out_window));
  sum_of(comm, in, out, COUNT, rank, ranks);
  NCCL(ncclMemFree(in));
  NCCL(ncclMemFree(out));
  NCCL(ncclCommDestroy(comm));
}

static void texts(int rank, int ranks) {
  int version = 0;
  (void)rank, (void)ranks;
  NCCL(ncclGetVersion(&version));
  CHECK(version == NCCL_VERSION_CODE, "version %d", version);
  CHECK(strstr(lockstep_nccl_version(), "lockstep") != NULL, "%s", lockstep_nccl_version());
  for (int code = 0; code < ncclNumResults; ++code)
    CHECK(strlen(ncclGetErrorString((ncclResult_t)code)) > 5, "code %d", code);
  CHECK(strstr(ncclGetErrorString((ncclResult_t)99), "unknown") != NULL, "code 99");
  CHECK(strcmp(ncclGetLastError(NULL), "") == 0, "an error before any: %s", ncclGetLastError(NULL));
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ncclResetDebugInit();
}

int main(void) {
  return run_ranks("texts", 1, texts) + run_ranks("registered", 2, registered) +
         run_ranks("windows", 2, windows);
}
