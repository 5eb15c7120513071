/* LOCKSTEP_NCCL_BLOCKING=1 in mode host_sync: calls return when they are complete, those of a group when all
 * of them are. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ranks.h"

enum { COUNT = 1000 };
static atomic_int* late; /* The last rank has made its call. */

static void sum_of_ranks(int* numbers, int rank, int ranks, ncclComm_t comm, cudaStream_t stream) {
  int host[COUNT];
  for (int i = 0; i < COUNT; ++i) host[i] = rank + i;
  CUDA(cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice));
  meet();
  if (rank == ranks - 1) {
    usleep(50000);
    atomic_store(late, 1);
  }
  NCCL(ncclAllReduce(numbers, numbers, COUNT, ncclInt32, ncclSum, comm, stream));
  CHECK(atomic_load(late), "it returned before the last rank had called");
  /* To pageable memory, behind the call, without waiting for the stream. */
  CUDA(cudaMemcpyAsync(host, numbers, sizeof host, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < COUNT; ++i)
    CHECK(host[i] == ranks * i + ranks * (ranks - 1) / 2, "%d at %d", host[i], i);
}

/* Each rank in another order: what waited within the group would wait for ever. */
static void crosswise(int* numbers, int rank, const ncclComm_t comms[2], const cudaStream_t streams[2]) {
  NCCL(ncclGroupStart());
  for (int i = 0; i < 2; ++i) {
    const int one = rank == 0 ? i : 1 - i;
    int* const half = numbers + one * COUNT / 2;
    NCCL(ncclAllReduce(half, half, COUNT / 2, ncclInt32, ncclSum, comms[one], streams[one]));
  }
  NCCL(ncclGroupEnd());
}

static void blocking(int rank, int ranks) {
  ncclComm_t comms[2];
  cudaStream_t streams[2];
  int* numbers;
  for (int i = 0; i < 2; ++i) {
    comms[i] = connect_ranks(rank, ranks);
    CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
  }
  CUDA(cudaMalloc((void**)&numbers, COUNT * sizeof *numbers));
  sum_of_ranks(numbers, rank, ranks, comms[0], streams[0]);
  crosswise(numbers, rank, comms, streams);
  for (int i = 0; i < 2; ++i) {
    NCCL(ncclCommDestroy(comms[i]));
    CUDA(cudaStreamDestroy(streams[i]));
  }
  CUDA(cudaFree(numbers));
}

/* Where this is the mode. */
static void between_hosts(int rank, int ranks) {
  char host[16];
  snprintf(host, sizeof host, "%d", rank);
  setenv("LOCKSTEP_HOST_ID", host, 1);
  blocking(rank, ranks);
  unsetenv("LOCKSTEP_HOST_ID");
}

int main(void) {
  late = mmap(NULL, sizeof *late, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const int failures = run_ranks("calls that block", 2, blocking);
  atomic_store(late, 0);
  return failures + run_ranks("calls that block, between hosts", 2, between_hosts);
}
