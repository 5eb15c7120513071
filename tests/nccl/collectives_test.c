/* Every collective x type x operator, out of place and in place, at odd counts: values, and the bytes beside.
 */
#include <stdint.h>
#include <string.h>

#include "ranks.h"
#include "values.h"

enum { GUARD = 64, POISON = 0xA5, MOST_COUNT = 1031 };
static const size_t counts[] = {0, 1, 7, MOST_COUNT};

struct test {
  ncclComm_t comm;
  cudaStream_t stream;
  int rank, ranks, root;
  ncclDataType_t type;
  ncclRedOp_t op; /* as given to the call */
  ncclRedOp_t meaning;
  int premul;
  size_t count;
  char *input, *output, *host; /* of `bytes` each */
  size_t bytes;
};

struct collective {
  const char* name;
  int reduces, rooted, blocks_in, blocks_out;
  ncclResult_t (*call)(const struct test* t, const void* in, void* out);
  int (*expected)(const struct test* t, size_t block, size_t index); /* element of a block of the output */
};

static ncclResult_t all_reduce(const struct test* t, const void* in, void* out) {
  return ncclAllReduce(in, out, t->count, t->type, t->op, t->comm, t->stream);
}
static ncclResult_t reduce(const struct test* t, const void* in, void* out) {
  return ncclReduce(in, out, t->count, t->type, t->op, t->root, t->comm, t->stream);
}
static ncclResult_t reduce_scatter(const struct test* t, const void* in, void* out) {
  return ncclReduceScatter(in, out, t->count, t->type, t->op, t->comm, t->stream);
}
static ncclResult_t broadcast(const struct test* t, const void* in, void* out) {
  return ncclBroadcast(in, out, t->count, t->type, t->root, t->comm, t->stream);
}
static ncclResult_t all_gather(const struct test* t, const void* in, void* out) {
  return ncclAllGather(in, out, t->count, t->type, t->comm, t->stream);
}
static ncclResult_t gather(const struct test* t, const void* in, void* out) {
  return ncclGather(in, out, t->count, t->type, t->root, t->comm, t->stream);
}
static ncclResult_t scatter(const struct test* t, const void* in, void* out) {
  return ncclScatter(in, out, t->count, t->type, t->root, t->comm, t->stream);
}
static ncclResult_t all_to_all(const struct test* t, const void* in, void* out) {
  return ncclAlltoAll(in, out, t->count, t->type, t->comm, t->stream);
}

static int reduced(const struct test* t, size_t block, size_t index) {
  (void)block;
  return reduced_value(t->ranks, index, t->meaning, t->premul);
}
static int own_block_reduced(const struct test* t, size_t block, size_t index) {
  (void)block;
  return reduced_value(t->ranks, (size_t)t->rank * t->count + index, t->meaning, t->premul);
}
static int of_root(const struct test* t, size_t block, size_t index) {
  (void)block;
  return input_value(t->root, t->ranks, index);
}
static int own_block_of_root(const struct test* t, size_t block, size_t index) {
  (void)block;
  return input_value(t->root, t->ranks, (size_t)t->rank * t->count + index);
}
static int of_its_rank(const struct test* t, size_t block, size_t index) {
  return input_value((int)block, t->ranks, index);
}
static int own_block_of_its_rank(const struct test* t, size_t block, size_t index) {
  return input_value((int)block, t->ranks, (size_t)t->rank * t->count + index);
}

/* name, reduces, rooted, blocks in, blocks out */
static const struct collective collectives[] = {
    {"AllReduce", 1, 0, 0, 0, all_reduce, reduced},
    {"Reduce", 1, 1, 0, 0, reduce, reduced},
    {"ReduceScatter", 1, 0, 1, 0, reduce_scatter, own_block_reduced},
    {"Broadcast", 0, 1, 0, 0, broadcast, of_root},
    {"AllGather", 0, 0, 0, 1, all_gather, of_its_rank},
    {"Gather", 0, 1, 0, 1, gather, of_its_rank},
    {"Scatter", 0, 1, 1, 0, scatter, own_block_of_root},
    {"AlltoAll", 0, 0, 1, 1, all_to_all, own_block_of_its_rank},
};

static int writes_output(const struct collective* c, const struct test* t) {
  const int only_root = c->call == reduce || c->call == gather;
  return !only_root || t->rank == t->root;
}

static void upload(const struct test* t, char* to) {
  CUDA(cudaMemcpyAsync(to, t->host, t->bytes, cudaMemcpyHostToDevice, t->stream));
  CUDA(cudaStreamSynchronize(t->stream));
}
static void download(const struct test* t, const char* from) {
  CUDA(cudaMemcpyAsync(t->host, from, t->bytes, cudaMemcpyDeviceToHost, t->stream));
  CUDA(cudaStreamSynchronize(t->stream));
}

/* Bytes of `host` outside [begin, end) are as they were filled. */
static void check_guards(const struct collective* c, const struct test* t, size_t begin, size_t end) {
  for (size_t i = 0; i < t->bytes; ++i) {
    if (i >= begin && i < end) continue;
    CHECK((unsigned char)t->host[i] == POISON, "%s type %d count %zu: byte %zu beside the output was written",
          c->name, t->type, t->count, i);
  }
}

static void check_output(const struct collective* c, const struct test* t, const char* output) {
  const size_t blocks = c->blocks_out ? (size_t)t->ranks : 1;
  for (size_t block = 0; block < blocks; ++block) {
    for (size_t i = 0; i < t->count; ++i) {
      const int wanted = c->expected(t, block, i);
      const int found = get_value(t->type, output, block * t->count + i);
      CHECK(found == wanted,
            "%s type %d op %d root %d count %zu, rank %d of %d: element %zu of block %zu is %d, not %d",
            c->name, t->type, t->op, t->root, t->count, t->rank, t->ranks, i, block, found, wanted);
    }
  }
}

/* In place the one buffer holds both sides, the smaller at this rank's block of the larger. */
static void run_one(const struct collective* c, struct test* t, int in_place) {
  const size_t block = t->count * size_of_type(t->type), n = (size_t)t->ranks;
  const size_t in_bytes = block * (c->blocks_in ? n : 1), out_bytes = block * (c->blocks_out ? n : 1);
  const int shifted = in_place && c->blocks_in != c->blocks_out && (!c->rooted || t->rank == t->root);
  const size_t shift = shifted ? (size_t)t->rank * block : 0;
  const size_t in_at = GUARD + (c->blocks_out && !c->blocks_in ? shift : 0);
  const size_t out_at = GUARD + (c->blocks_in && !c->blocks_out ? shift : 0);
  char* const output = in_place ? t->input : t->output;

  memset(t->host, POISON, t->bytes);
  if (!in_place) upload(t, t->output);
  for (size_t i = 0; i < in_bytes / size_of_type(t->type); ++i)
    put_value(t->type, t->host + in_at, i, input_value(t->rank, t->ranks, i));
  upload(t, t->input);
  NCCL(c->call(t, t->input + in_at, output + out_at));
  download(t, output);
  if (!writes_output(c, t)) {
    if (!in_place) check_guards(c, t, 0, 0);
    return;
  }
  check_output(c, t, t->host + out_at);
  if (!in_place) check_guards(c, t, out_at, out_at + out_bytes);
}

static void run_counts(const struct collective* c, struct test* t) {
  for (size_t i = 0; i < sizeof counts / sizeof *counts; ++i) {
    t->count = counts[i];
    t->root = c->rooted ? (int)(i % (size_t)t->ranks) : 0;
    run_one(c, t, 0);
    run_one(c, t, 1);
  }
}

static void run_operators(const struct collective* c, struct test* t) {
  static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  t->premul = 0;
  for (int i = 0; i < (c->reduces ? 5 : 1); ++i) {
    t->op = t->meaning = ops[i];
    run_counts(c, t);
  }
  if (!c->reduces) return;
  char scalar[8];
  put_value(t->type, scalar, 0, scale_of(t->rank));
  NCCL(ncclRedOpCreatePreMulSum(&t->op, scalar, t->type, ncclScalarHostImmediate, t->comm));
  t->premul = 1;
  run_counts(c, t);
  NCCL(ncclRedOpDestroy(t->op, t->comm));
  char* on_device;
  CUDA(cudaMalloc((void**)&on_device, sizeof scalar));
  CUDA(cudaMemcpy(on_device, scalar, sizeof scalar, cudaMemcpyHostToDevice));
  NCCL(ncclRedOpCreatePreMulSum(&t->op, on_device, t->type, ncclScalarDevice, t->comm));
  run_counts(c, t);
  NCCL(ncclRedOpDestroy(t->op, t->comm));
  CUDA(cudaFree(on_device));
}

static void run_all(int rank, int ranks) {
  struct test t = {.comm = connect_ranks(rank, ranks), .rank = rank, .ranks = ranks};
  CUDA(cudaStreamCreate(&t.stream));
  t.bytes = 2 * GUARD + (size_t)ranks * MOST_COUNT * 8;
  CUDA(cudaMalloc((void**)&t.input, t.bytes));
  NCCL(ncclMemAlloc((void**)&t.output, t.bytes));
  CUDA(cudaHostAlloc((void**)&t.host, t.bytes, 0)); /* pinned: its copies keep nobody from the device */
  for (size_t i = 0; i < sizeof collectives / sizeof *collectives; ++i) {
    for (int type = 0; type < ncclNumTypes; ++type) {
      t.type = (ncclDataType_t)type;
      run_operators(&collectives[i], &t);
    }
  }
  CUDA(cudaFreeHost(t.host));
  NCCL(ncclMemFree(t.output));
  CUDA(cudaFree(t.input));
  NCCL(ncclCommDestroy(t.comm));
  CUDA(cudaStreamDestroy(t.stream));
}

int main(void) {
  return run_ranks("collectives, alone", 1, run_all) + run_ranks("collectives", 2, run_all) +
         run_ranks("collectives", 3, run_all);
}
