/* Groups and messages: fused sends and receives, nesting, aggregation, errors at the end of a group. */
#include <string.h>

#include "ranks.h"

enum { COUNT = 5000 };

struct buffers {
  cudaStream_t stream;
  int *send, *receive; /* device memory of ranks * COUNT elements */
  int* host;
  size_t bytes;
};

static struct buffers make_buffers(int ranks) {
  struct buffers b;
  b.bytes = (size_t)ranks * COUNT * sizeof(int);
  CUDA(cudaStreamCreate(&b.stream));
  NCCL(ncclMemAlloc((void**)&b.send, b.bytes));
  NCCL(ncclMemAlloc((void**)&b.receive, b.bytes));
  b.host = malloc(b.bytes);
  return b;
}

static void free_buffers(struct buffers* b) {
  free(b->host);
  NCCL(ncclMemFree(b->send));
  NCCL(ncclMemFree(b->receive));
  CUDA(cudaStreamDestroy(b->stream));
}

/* Element i of the block for rank `to`. */
static int element(int from, int to, int i) { return (from * 100 + to) * 10000 + i; }

static void fill(struct buffers* b, int rank, int ranks) {
  for (int to = 0; to < ranks; ++to) {
    for (int i = 0; i < COUNT; ++i) b->host[to * COUNT + i] = element(rank, to, i);
  }
  CUDA(cudaMemcpy(b->send, b->host, b->bytes, cudaMemcpyHostToDevice));
  CUDA(cudaMemset(b->receive, 0, b->bytes));
}

static void check_block(struct buffers* b, int from, int to, int block) {
  CUDA(cudaStreamSynchronize(b->stream));
  CUDA(cudaMemcpy(b->host, b->receive, b->bytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < COUNT; ++i) {
    const int found = b->host[block * COUNT + i];
    CHECK(found == element(from, to, i), "element %d from %d to %d is %d", i, from, to, found);
  }
}

static void all_to_all_by_hand(ncclComm_t comm, struct buffers* b, int rank, int ranks) {
  fill(b, rank, ranks);
  NCCL(ncclGroupStart());
  NCCL(ncclGroupStart()); /* nesting changes nothing */
  for (int k = 0; k < ranks; ++k) {
    const int peer = (rank + k) % ranks; /* each rank in another order, itself among them */
    NCCL(ncclSend(b->send + peer * COUNT, COUNT, ncclInt32, peer, comm, b->stream));
    NCCL(ncclRecv(b->receive + peer * COUNT, COUNT, ncclInt32, peer, comm, b->stream));
  }
  NCCL(ncclGroupEnd());
  NCCL(ncclGroupEnd());
  for (int from = 0; from < ranks; ++from) check_block(b, from, rank, from);
}

static void alone_in_a_chain(ncclComm_t comm, struct buffers* b, int rank, int ranks) {
  fill(b, rank, ranks);
  if (rank > 0) NCCL(ncclRecv(b->receive, COUNT, ncclInt32, rank - 1, comm, b->stream));
  if (rank + 1 < ranks)
    NCCL(ncclSend(b->send + (rank + 1) * COUNT, COUNT, ncclInt32, rank + 1, comm, b->stream));
  CUDA(cudaStreamSynchronize(b->stream));
  if (rank > 0) check_block(b, rank - 1, rank, 0);
}

/* Ranks that mix collectives and messages differently inside a group still meet. */
static void mixed(ncclComm_t comm, struct buffers* b, int rank, int ranks) {
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  int* const sum = b->receive + COUNT;
  fill(b, rank, ranks);
  CUDA(cudaMemcpy(sum, &rank, sizeof rank, cudaMemcpyHostToDevice));
  NCCL(ncclGroupStart());
  if (rank == 0) NCCL(ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, comm, b->stream));
  NCCL(ncclSend(b->send + next * COUNT, COUNT, ncclInt32, next, comm, b->stream));
  NCCL(ncclRecv(b->receive, COUNT, ncclInt32, previous, comm, b->stream));
  if (rank != 0) NCCL(ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, comm, b->stream));
  NCCL(ncclSend(b->send, 0, ncclInt32, next, comm, b->stream)); /* nothing is no message */
  NCCL(ncclGroupEnd());
  check_block(b, previous, rank, 0);
  CHECK(b->host[COUNT] == ranks * (ranks - 1) / 2, "the sum is %d", b->host[COUNT]);
}

static void aggregated(ncclComm_t comm, struct buffers* b, int rank, int ranks) {
  enum { CALLS = 20 };
  for (int i = 0; i < CALLS; ++i) b->host[i] = rank + i;
  CUDA(cudaMemcpy(b->send, b->host, CALLS * sizeof(int), cudaMemcpyHostToDevice));
  NCCL(ncclGroupStart());
  for (int i = 0; i < CALLS; ++i)
    NCCL(ncclAllReduce(b->send + i, b->receive + i, 1, ncclInt32, ncclSum, comm, b->stream));
  NCCL(ncclBcast(b->send + CALLS, 1, ncclInt32, ranks - 1, comm, b->stream));
  NCCL(ncclGroupEnd());
  CUDA(cudaStreamSynchronize(b->stream));
  CUDA(cudaMemcpy(b->host, b->receive, CALLS * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < CALLS; ++i)
    CHECK(b->host[i] == ranks * (ranks - 1) / 2 + ranks * i, "sum %d is %d", i, b->host[i]);
}

/* More than kernels carry at once: refused as a whole where they do, with the communicator as it was. */
static void many(ncclComm_t comm, struct buffers* b, int rank, int ranks) {
  const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
  const char* mode = getenv("LOCKSTEP_DEVICE_MODE");
  fill(b, rank, ranks);
  NCCL(ncclGroupStart());
  for (int i = 0; i < 100; ++i) {
    NCCL(ncclSend(b->send + next * COUNT + i, 1, ncclInt32, next, comm, b->stream));
    NCCL(ncclRecv(b->receive + i, 1, ncclInt32, previous, comm, b->stream));
  }
  if (mode != NULL && strcmp(mode, "device_sync") == 0) {
    REFUSED(ncclGroupEnd(), ncclInvalidUsage, "192");
    return;
  }
  const ncclResult_t result = ncclGroupEnd();
  if (mode != NULL && result == ncclInvalidUsage) return; /* stream_sync, where no GPU is shared */
  NCCL(result);
  CUDA(cudaStreamSynchronize(b->stream));
  CUDA(cudaMemcpy(b->host, b->receive, b->bytes, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 100; ++i)
    CHECK(b->host[i] == element(previous, rank, i), "message %d is %d", i, b->host[i]);
}

static void errors(ncclComm_t comm, struct buffers* b, int rank, int ranks) {
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  REFUSED(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupStart");
  REFUSED(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "ncclGroupStart");
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(b->send, b->receive, 1, ncclInt32, ncclSum, comm, b->stream));
  REFUSED(ncclGroupSimulateEnd(&info), ncclInvalidUsage, "does not estimate");
  CHECK(info.estimatedTime == NCCL_UNDEF_FLOAT, "an invented time");
  /* A call that is refused: its group starts nothing, on all ranks alike here. */
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(b->send, b->receive, 1, ncclInt32, ncclSum, comm, b->stream));
  REFUSED(ncclSend(b->send, 1, ncclInt32, ranks, comm, b->stream), ncclInvalidArgument, "peer");
  CHECK(ncclGroupEnd() == ncclInvalidArgument, "the group forgot its error");
  all_to_all_by_hand(comm, b, rank, ranks); /* and nothing is left of it */
}

/* One thread makes all calls of one rank before the first of the other, each in place and larger than the
 * last. */
static void growing(int rank, int ranks) {
  enum { RANKS = 2, CALLS = 4, FIRST = 1000, LAST = FIRST << 3 * (CALLS - 1) }; /* to megabytes */
  const int devices[RANKS] = {0, 0};
  ncclComm_t comms[RANKS];
  cudaStream_t streams[RANKS];
  int *memory[RANKS][CALLS], *host = malloc(RANKS * LAST * sizeof(int));
  (void)rank, (void)ranks;
  CUDA(cudaSetDevice(0));
  NCCL(ncclCommInitAll(comms, RANKS, devices));
  for (int r = 0; r < RANKS; ++r) {
    CUDA(cudaStreamCreate(&streams[r]));
    for (int call = 0; call < CALLS; ++call) {
      const int count = FIRST << 3 * call;
      const size_t bytes = RANKS * (size_t)count * sizeof(int);
      for (int i = 0; i < RANKS * count; ++i) host[i] = element(r, i / count, i % count + call);
      CUDA(cudaMalloc((void**)&memory[r][call], bytes));
      CUDA(cudaMemcpy(memory[r][call], host, bytes, cudaMemcpyHostToDevice));
    }
  }
  for (int r = 0; r < RANKS; ++r) {
    for (int call = 0; call < CALLS; ++call) {
      int* const own = memory[r][call];
      NCCL(ncclAlltoAll(own, own, FIRST << 3 * call, ncclInt32, comms[r], streams[r]));
    }
  }
  for (int r = 0; r < RANKS; ++r) CUDA(cudaStreamSynchronize(streams[r]));
  for (int r = 0; r < RANKS; ++r) {
    for (int call = 0; call < CALLS; ++call) {
      const int count = FIRST << 3 * call;
      CUDA(cudaMemcpy(host, memory[r][call], RANKS * (size_t)count * sizeof(int), cudaMemcpyDeviceToHost));
      for (int i = 0; i < RANKS * count; ++i)
        CHECK(host[i] == element(i / count, r, i % count + call), "element %d of call %d is %d", i, call,
              host[i]);
      CUDA(cudaFree(memory[r][call]));
    }
    CUDA(cudaStreamDestroy(streams[r]));
  }
  for (int r = 0; r < RANKS; ++r) NCCL(ncclCommDestroy(comms[r]));
  free(host);
}

static void run_all(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  struct buffers b = make_buffers(ranks > 1 ? ranks : 2);
  all_to_all_by_hand(comm, &b, rank, ranks);
  alone_in_a_chain(comm, &b, rank, ranks);
  mixed(comm, &b, rank, ranks);
  aggregated(comm, &b, rank, ranks);
  many(comm, &b, rank, ranks);
  errors(comm, &b, rank, ranks);
  free_buffers(&b);
  NCCL(ncclCommDestroy(comm));
}

int main(void) {
  return run_ranks("groups", 2, run_all) + run_ranks("groups", 3, run_all) +
         run_ranks("growing in place", 1, growing);
}
