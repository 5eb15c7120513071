/* Random calls of several communicators, alone and in groups, of collectives and messages, on streams that
 * each rank chooses for itself; every result is looked at. RANDOM_SEED=2 makes others, ROUNDS=1000 more. */
#include <string.h>

#include "ranks.h"
#include "values.h"

enum { COMMS = 3, STREAMS = 2, CALLS = 6, MOST_COUNT = 20000, MOST_RANKS = 3, GUARD = 64, POISON = 0xA5 };
/* Of the input, and as much of the output, of a call. */
enum { BLOCKS = MOST_RANKS * MOST_COUNT * 8, CALL_BYTES = 2 * BLOCKS + 3 * GUARD };

enum kind {
  ALL_REDUCE,
  REDUCE,
  REDUCE_SCATTER,
  BROADCAST,
  ALL_GATHER,
  GATHER,
  SCATTER,
  ALL_TO_ALL,
  RING,
  KINDS
};

struct place {
  ncclComm_t comm;
  int rank, ranks;
};
struct state {
  struct place places[COMMS];
  cudaStream_t streams[STREAMS];
  char *device, *host; /* CALLS times CALL_BYTES */
  unsigned long long shared, own;
};
struct call {
  const struct place* on;
  enum kind kind;
  ncclDataType_t type;
  ncclRedOp_t op, meaning;
  int premul, root;
  size_t count, input_at, output_at; /* in the memory of all calls */
};

static unsigned draw(unsigned long long* state, unsigned below) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return (unsigned)(*state >> 33) % below;
}

static int reduces(enum kind kind) { return kind <= REDUCE_SCATTER; }
static size_t blocks_in(const struct call* c) {
  const int all = c->kind == REDUCE_SCATTER || c->kind == SCATTER || c->kind == ALL_TO_ALL;
  return all ? (size_t)c->on->ranks : 1;
}
static size_t blocks_out(const struct call* c) {
  const int all = c->kind == ALL_GATHER || c->kind == GATHER || c->kind == ALL_TO_ALL;
  return all ? (size_t)c->on->ranks : 1;
}
static int has_output(const struct call* c) {
  return (c->kind != REDUCE && c->kind != GATHER) || c->on->rank == c->root;
}

static int expected(const struct call* c, size_t block, size_t i) {
  const int ranks = c->on->ranks;
  const size_t own = (size_t)c->on->rank * c->count + i;
  switch (c->kind) {
    case ALL_REDUCE:
    case REDUCE:
      return reduced_value(ranks, i, c->meaning, c->premul);
    case REDUCE_SCATTER:
      return reduced_value(ranks, own, c->meaning, c->premul);
    case BROADCAST:
      return input_value(c->root, ranks, i);
    case SCATTER:
      return input_value(c->root, ranks, own);
    case ALL_TO_ALL:
      return input_value((int)block, ranks, own);
    case RING:
      return input_value((c->on->rank + ranks - 1) % ranks, ranks, i);
    default:
      return input_value((int)block, ranks, i);
  }
}

static void start(const struct state* s, const struct call* c, cudaStream_t stream) {
  const void* const in = s->device + c->input_at;
  void* const out = s->device + c->output_at;
  const struct place* const on = c->on;
  switch (c->kind) {
    case ALL_REDUCE:
      NCCL(ncclAllReduce(in, out, c->count, c->type, c->op, on->comm, stream));
      break;
    case REDUCE:
      NCCL(ncclReduce(in, out, c->count, c->type, c->op, c->root, on->comm, stream));
      break;
    case REDUCE_SCATTER:
      NCCL(ncclReduceScatter(in, out, c->count, c->type, c->op, on->comm, stream));
      break;
    case BROADCAST:
      NCCL(ncclBroadcast(in, out, c->count, c->type, c->root, on->comm, stream));
      break;
    case ALL_GATHER:
      NCCL(ncclAllGather(in, out, c->count, c->type, on->comm, stream));
      break;
    case GATHER:
      NCCL(ncclGather(in, out, c->count, c->type, c->root, on->comm, stream));
      break;
    case SCATTER:
      NCCL(ncclScatter(in, out, c->count, c->type, c->root, on->comm, stream));
      break;
    case ALL_TO_ALL:
      NCCL(ncclAlltoAll(in, out, c->count, c->type, on->comm, stream));
      break;
    default:
      NCCL(ncclGroupStart());
      NCCL(ncclRecv(out, c->count, c->type, (on->rank + on->ranks - 1) % on->ranks, on->comm, stream));
      NCCL(ncclSend(in, c->count, c->type, (on->rank + 1) % on->ranks, on->comm, stream));
      NCCL(ncclGroupEnd());
  }
}

static void put_inputs(const struct state* s, const struct call* c) {
  for (size_t i = 0; i < blocks_in(c) * c->count; ++i)
    put_value(c->type, s->host + c->input_at, i, input_value(c->on->rank, c->on->ranks, i));
}

/* Alike on all ranks, but for who has which number in a communicator. */
static struct call draw_call(struct state* s, size_t number) {
  struct call c = {.on = &s->places[draw(&s->shared, COMMS)]};
  const int in_place = (int)draw(&s->shared, 2);
  static const ncclRedOp_t ops[] = {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg};
  c.kind = (enum kind)draw(&s->shared, KINDS);
  c.type = (ncclDataType_t)draw(&s->shared, ncclNumTypes);
  c.op = c.meaning = ops[draw(&s->shared, 5)];
  c.premul = draw(&s->shared, 4) == 0;
  c.root = (int)(draw(&s->shared, 6) % (unsigned)c.on->ranks);
  c.count = draw(&s->shared, (MOST_COUNT >> draw(&s->shared, 12)) + 1);
  c.input_at = number * CALL_BYTES + GUARD;
  c.output_at = c.input_at + BLOCKS + GUARD;
  if (in_place && (c.kind == ALL_REDUCE || c.kind == REDUCE || c.kind == BROADCAST || c.kind == ALL_TO_ALL))
    c.output_at = c.input_at;
  if (reduces(c.kind) && c.premul) {
    char scalar[8];
    put_value(c.type, scalar, 0, scale_of(c.on->rank));
    NCCL(ncclRedOpCreatePreMulSum(&c.op, scalar, c.type, ncclScalarHostImmediate, c.on->comm));
  }
  put_inputs(s, &c);
  return c;
}

/* The bytes of the call that are not its input are as they were but for its output. */
static void check_call(const struct state* s, const struct call* c, size_t number) {
  const size_t bytes = has_output(c) ? blocks_out(c) * c->count * size_of_type(c->type) : 0;
  const size_t read = blocks_in(c) * c->count * size_of_type(c->type);
  for (size_t at = number * CALL_BYTES; at < (number + 1) * CALL_BYTES; ++at) {
    if ((at >= c->output_at && at < c->output_at + bytes) || (at >= c->input_at && at < c->input_at + read))
      continue;
    CHECK((unsigned char)s->host[at] == POISON, "kind %d: byte %zu beside the buffers was written", c->kind,
          at);
  }
  for (size_t i = 0; has_output(c) && i < blocks_out(c) * c->count; ++i) {
    const int wanted = expected(c, i / c->count, i % c->count);
    const int found = get_value(c->type, s->host + c->output_at, i);
    CHECK(found == wanted,
          "kind %d type %d op %d premul %d count %zu, rank %d of %d: element %zu is %d, not %d", c->kind,
          c->type, c->meaning, c->premul, c->count, c->on->rank, c->on->ranks, i, found, wanted);
  }
}

static void copy(const struct state* s, int up) {
  const size_t bytes = CALLS * (size_t)CALL_BYTES;
  CUDA(cudaMemcpyAsync(up ? s->device : s->host, up ? s->host : s->device, bytes, cudaMemcpyDefault,
                       s->streams[0]));
  CUDA(cudaStreamSynchronize(s->streams[0]));
}

/* Calls without a wait in between. */
static void run_round(struct state* s) {
  struct call calls[CALLS];
  const size_t count = 1 + draw(&s->shared, CALLS);
  const int grouped = (int)draw(&s->shared, 2);
  memset(s->host, POISON, CALLS * (size_t)CALL_BYTES);
  for (size_t i = 0; i < count; ++i) calls[i] = draw_call(s, i);
  copy(s, 1);
  if (grouped) NCCL(ncclGroupStart());
  for (size_t i = 0; i < count; ++i) start(s, &calls[i], s->streams[draw(&s->own, STREAMS)]);
  if (grouped) NCCL(ncclGroupEnd());
  for (size_t i = 0; i < count; ++i) {
    if (calls[i].op != calls[i].meaning) NCCL(ncclRedOpDestroy(calls[i].op, calls[i].on->comm));
  }
  for (int i = 0; i < STREAMS; ++i) CUDA(cudaStreamSynchronize(s->streams[i]));
  copy(s, 0);
  for (size_t i = 0; i < count; ++i) check_call(s, &calls[i], i);
}

static unsigned setting(const char* name, unsigned otherwise) {
  const char* const text = getenv(name);
  return text != NULL ? (unsigned)atoi(text) : otherwise;
}

static void run_all(int rank, int ranks) {
  struct state s = {.shared = setting("RANDOM_SEED", 1), .own = (unsigned)rank + 1};
  ncclWindow_t window;
  s.places[0].comm = connect_ranks(rank, ranks);
  NCCL(ncclCommSplit(s.places[0].comm, 0, -rank, &s.places[1].comm, NULL)); /* the other way round */
  NCCL(ncclCommSplit(s.places[0].comm, rank == 0, rank, &s.places[2].comm, NULL));
  for (int i = 0; i < COMMS; ++i) {
    NCCL(ncclCommCount(s.places[i].comm, &s.places[i].ranks));
    NCCL(ncclCommUserRank(s.places[i].comm, &s.places[i].rank));
  }
  for (int i = 0; i < STREAMS; ++i) CUDA(cudaStreamCreate(&s.streams[i]));
  NCCL(ncclMemAlloc((void**)&s.device, CALLS * (size_t)CALL_BYTES));
  CUDA(cudaHostAlloc((void**)&s.host, CALLS * (size_t)CALL_BYTES, 0));
  NCCL(ncclCommWindowRegister(s.places[0].comm, s.device, CALLS * (size_t)CALL_BYTES, &window,
                              NCCL_WIN_COLL_SYMMETRIC));
  for (unsigned left = setting("ROUNDS", 40); left > 0; --left) run_round(&s);
  NCCL(ncclCommWindowDeregister(s.places[0].comm, window));
  for (int i = COMMS - 1; i >= 0; --i) NCCL(ncclCommDestroy(s.places[i].comm));
  CUDA(cudaFreeHost(s.host));
  NCCL(ncclMemFree(s.device));
  for (int i = 0; i < STREAMS; ++i) CUDA(cudaStreamDestroy(s.streams[i]));
}

int main(void) { return run_ranks("random calls", 2, run_all) + run_ranks("random calls", 3, run_all); }
