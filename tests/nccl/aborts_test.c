/* Communicators whose operations stand one behind the other in a stream, ended by one thread, the later
 * first; and what is ended while it is being made. */
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "ranks.h"

/* All patience of the calls together is less, and the deadline of an operation far more. */
enum { SECONDS_ALLOWED = 20 };

struct stuck {
  ncclComm_t first, behind;
  cudaStream_t stream;
  int* number;
  time_t begun;
};

/* Rank 0's stream waits for calls that the others never make. */
static struct stuck make_stuck(int rank, int ranks) {
  struct stuck s;
  s.first = connect_ranks(rank, ranks);
  s.behind = connect_ranks(rank, ranks);
  CUDA(cudaStreamCreate(&s.stream));
  CUDA(cudaMalloc((void**)&s.number, sizeof *s.number));
  if (rank == 0) {
    NCCL(ncclAllReduce(s.number, s.number, 1, ncclInt32, ncclSum, s.first, s.stream));
    NCCL(ncclAllReduce(s.number, s.number, 1, ncclInt32, ncclSum, s.behind, s.stream));
  }
  s.begun = time(NULL);
  return s;
}

static void check_over(struct stuck* s) {
  CUDA(cudaStreamSynchronize(s->stream));
  CHECK(time(NULL) - s->begun < SECONDS_ALLOWED, "it took %d s", (int)(time(NULL) - s->begun));
  CUDA(cudaStreamDestroy(s->stream));
  CUDA(cudaFree(s->number));
  meet(); /* nobody was ended by the others' end */
}

/* Of a rank that was not stuck. */
static void check_ended(struct stuck* s) {
  check_over(s);
  NCCL(ncclCommAbort(s->behind));
  NCCL(ncclCommAbort(s->first));
}

/* Rank 0 ends what it is stuck in by end(). */
static void beside_stuck(int rank, int ranks, void (*end)(struct stuck*)) {
  struct stuck s = make_stuck(rank, ranks);
  meet();
  if (rank == 0) {
    end(&s);
  } else {
    check_ended(&s);
  }
}

static void end_one_by_one(struct stuck* s) {
  NCCL(ncclCommAbort(s->behind));
  NCCL(ncclCommAbort(s->first));
  check_over(s);
}
static void abort_alone(int rank, int ranks) { beside_stuck(rank, ranks, end_one_by_one); }

/* As PyTorch does it. */
static void end_in_group(struct stuck* s) {
  NCCL(ncclGroupStart());
  NCCL(ncclCommAbort(s->behind));
  REFUSED(ncclCommAbort(s->behind), ncclInvalidArgument, "destroyed");
  NCCL(ncclCommAbort(s->first));
  NCCL(ncclGroupEnd());
  check_over(s);
}
static void abort_in_group(int rank, int ranks) { beside_stuck(rank, ranks, end_in_group); }

/* What was called in the group goes with its communicator. */
static void end_with_calls(struct stuck* s) {
  NCCL(ncclGroupStart());
  NCCL(ncclAllReduce(s->number, s->number, 1, ncclInt32, ncclSum, s->behind, s->stream));
  NCCL(ncclCommAbort(s->behind));
  NCCL(ncclGroupEnd());
  NCCL(ncclCommAbort(s->first));
  check_over(s);
}
static void abort_with_calls(int rank, int ranks) { beside_stuck(rank, ranks, end_with_calls); }

static void end_by_revoke(struct stuck* s) {
  NCCL(ncclCommRevoke(s->behind, NCCL_REVOKE_DEFAULT));
  NCCL(ncclCommDestroy(s->behind));
  NCCL(ncclCommRevoke(s->first, NCCL_REVOKE_DEFAULT));
  const ncclResult_t state = await_state(s->first);
  CHECK(state == ncclSuccess, "revoked, and %d", state);
  check_over(s);
  NCCL(ncclCommDestroy(s->first));
}
static void revoke_and_destroy(int rank, int ranks) { beside_stuck(rank, ranks, end_by_revoke); }

/* ---- what the other rank never makes, or makes too late */

struct split {
  ncclComm_t parent, child;
  ncclResult_t result;
};

static void* split_alone(void* of) {
  struct split* s = of;
  s->result = ncclCommSplit(s->parent, 0, 0, &s->child, NULL);
  return NULL;
}

static void abort_split(int rank, int ranks) {
  struct split s = {connect_ranks(rank, ranks), NULL, ncclSuccess};
  const time_t begun = time(NULL);
  if (rank == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, split_alone, &s);
    usleep(100000); /* It waits by now; if not, it is refused. */
    NCCL(ncclCommAbort(s.parent));
    pthread_join(thread, NULL);
    CHECK(s.result == ncclRemoteError || s.result == ncclInvalidArgument, "%d", s.result);
    CHECK(s.child == NULL, "a child of nobody");
    CHECK(time(NULL) - begun < SECONDS_ALLOWED, "it took %d s", (int)(time(NULL) - begun));
  }
  meet();
  if (rank != 0) NCCL(ncclCommAbort(s.parent));
}

static void abort_splits_in_progress(int rank, int ranks) {
  ncclConfig_t config = not_blocking();
  ncclComm_t parent = connect_ranks(rank, ranks), children[2];
  const time_t begun = time(NULL);
  if (rank == 0) {
    for (int i = 0; i < 2; ++i) {
      const ncclResult_t result = ncclCommSplit(parent, 0, 0, &children[i], &config);
      CHECK(result == ncclInProgress, "%d: %s", result, ncclGetLastError(parent));
    }
    NCCL(ncclCommAbort(parent));
    for (int i = 0; i < 2; ++i) {
      const ncclResult_t state = await_state(children[i]);
      CHECK(state == ncclRemoteError, "%d: %s", state, ncclGetLastError(children[i]));
      NCCL(ncclCommAbort(children[i]));
    }
    CHECK(time(NULL) - begun < SECONDS_ALLOWED, "it took %d s", (int)(time(NULL) - begun));
  }
  meet();
  if (rank != 0) NCCL(ncclCommAbort(parent));
}

/* Who comes to a communicator whose other rank has given it up is told, and gets none. */
static void abort_beginning(int rank, int ranks) {
  ncclConfig_t config = not_blocking();
  ncclUniqueId id;
  ncclComm_t comm;
  if (rank == 0) NCCL(ncclGetUniqueId(&id));
  share(0, rank, &id, sizeof id);
  if (rank == 0) {
    CHECK(ncclCommInitRankConfig(&comm, ranks, id, rank, &config) == ncclInProgress, "it waited");
    NCCL(ncclCommAbort(comm));
  }
  meet();
  if (rank != 0) {
    REFUSED(ncclCommInitRank(&comm, ranks, id, rank), ncclRemoteError, "");
    CHECK(comm == NULL, "a communicator without its other rank");
  }
  meet();
}

/* In a group what was to come out of it goes with it, as its calls do. */
static void abort_before_split(int rank, int ranks) {
  ncclComm_t parent = connect_ranks(rank, ranks), child = parent;
  NCCL(ncclGroupStart());
  NCCL(ncclCommSplit(parent, 0, rank, &child, NULL));
  NCCL(ncclCommAbort(parent));
  NCCL(ncclGroupEnd());
  CHECK(child == NULL, "a child of nobody");
}

int main(void) {
  return run_ranks("abort, the later first", 2, abort_alone) +
         run_ranks("abort in a group", 2, abort_in_group) +
         run_ranks("abort with calls in the group", 2, abort_with_calls) +
         run_ranks("revoke and destroy", 2, revoke_and_destroy) + run_ranks("abort a split", 2, abort_split) +
         run_ranks("abort splits in progress", 2, abort_splits_in_progress) +
         run_ranks("abort a beginning", 2, abort_beginning) +
         run_ranks("abort before a split", 2, abort_before_split);
}
