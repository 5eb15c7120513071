/* Calls captured in a graph, in mode device_sync: right in every replay; refused where a graph could not keep
 * what they need, and then the capture is not harmed. */
#include "ranks.h"

enum { COUNT = 3000, REPLAYS = 5 };

struct graph {
  cudaGraph_t captured;
  cudaGraphExec_t ready;
};

static void end_capture(struct graph* g, cudaStream_t stream) {
  CUDA(cudaStreamEndCapture(stream, &g->captured));
  CUDA(cudaGraphInstantiate(&g->ready, g->captured, 0));
}
static void destroy(struct graph* g) {
  CUDA(cudaGraphExecDestroy(g->ready));
  CUDA(cudaGraphDestroy(g->captured));
}

static int* on_device(size_t count) {
  int* memory;
  CUDA(cudaMalloc((void**)&memory, count * sizeof *memory));
  return memory;
}

static void replayed(int rank, int ranks) {
  ncclComm_t comm = connect_ranks(rank, ranks);
  cudaStream_t stream;
  struct graph graph;
  int *host, *sum = on_device(COUNT), *from = on_device(COUNT), *to = on_device(COUNT);
  int expected = 1;
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA(cudaHostAlloc((void**)&host, COUNT * sizeof *host, 0));
  for (int i = 0; i < COUNT; ++i) host[i] = 1;
  CUDA(cudaMemcpyAsync(sum, host, COUNT * sizeof *host, cudaMemcpyHostToDevice, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < COUNT; ++i) host[i] = rank;
  CUDA(cudaMemcpyAsync(from, host, COUNT * sizeof *host, cudaMemcpyHostToDevice, stream));
  NCCL(ncclAlltoAll(from, from, 0, ncclInt32, comm, stream)); /* of nothing: as good as none */
  CUDA(cudaStreamSynchronize(stream));

  CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  NCCL(ncclAllReduce(sum, sum, COUNT, ncclInt32, ncclSum, comm, stream));
  REFUSED(ncclAlltoAll(from, from, COUNT / (size_t)ranks, ncclInt32, comm, stream), ncclInvalidUsage,
          "graph");
  NCCL(ncclAlltoAll(from, to, COUNT / (size_t)ranks, ncclInt32, comm, stream));
  NCCL(ncclGroupStart());
  NCCL(ncclSend(to, 1, ncclInt32, (rank + 1) % ranks, comm, stream));
  NCCL(ncclRecv(from, 1, ncclInt32, (rank + ranks - 1) % ranks, comm, stream));
  NCCL(ncclGroupEnd());
  end_capture(&graph, stream);
  for (int i = 0; i < REPLAYS; ++i) {
    CUDA(cudaGraphLaunch(graph.ready, stream));
    expected *= ranks;
  }
  CUDA(cudaMemcpyAsync(host, sum, COUNT * sizeof *host, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 0; i < COUNT; ++i) CHECK(host[i] == expected, "sum %d is %d, not %d", i, host[i], expected);
  CUDA(cudaMemcpyAsync(host, to, COUNT * sizeof *host, cudaMemcpyDeviceToHost, stream));
  CUDA(cudaStreamSynchronize(stream));
  for (int i = 1; i < COUNT / ranks * ranks; ++i)
    CHECK(i % (COUNT / ranks) == 0 || host[i] == i / (COUNT / ranks), "element %d is %d", i, host[i]);
  destroy(&graph);
  NCCL(ncclCommDestroy(comm));
  CUDA(cudaFreeHost(host));
  CUDA(cudaFree(sum));
  CUDA(cudaFree(from));
  CUDA(cudaFree(to));
  CUDA(cudaStreamDestroy(stream));
}

int main(void) {
  return run_ranks("replayed graphs", 1, replayed) + run_ranks("replayed graphs", 3, replayed);
}
