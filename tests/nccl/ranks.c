#define _GNU_SOURCE
#include "ranks.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"

enum { SECONDS = 100, SHARED_BYTES = 4096 };

struct pages {
  atomic_int arrived, turn;
  char shared[SHARED_BYTES];
};

static struct pages* pages;
static int processes;
int expected_signal = 0;

void meet(void) {
  const int turn = atomic_load(&pages->turn);
  if (atomic_fetch_add(&pages->arrived, 1) + 1 == processes) {
    atomic_store(&pages->arrived, 0);
    atomic_store(&pages->turn, turn + 1);
  }
  while (atomic_load(&pages->turn) == turn) sched_yield();
}

void share(int from, int rank, void* data, size_t bytes) {
  if (rank == from) memcpy(pages->shared, data, bytes);
  meet();
  memcpy(data, pages->shared, bytes);
  meet();
}

static void be_rank(int rank, int ranks, rank_body body) {
  alarm(SECONDS);
  processes = ranks;
  CUDA(cudaSetDevice(device_of(rank)));
  body(rank, ranks);
  alarm(0);
}

static int reap(const char* name, pid_t* children, int ranks) {
  int failures = 0;
  for (int left = ranks; left > 0; --left) {
    int status = 0, rank = 0;
    const pid_t child = waitpid(-1, &status, 0);
    while (rank < ranks && children[rank] != child) ++rank;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (WIFSIGNALED(status) && WTERMSIG(status) == expected_signal) continue;
    if (failures++ == 0) {
      fprintf(stderr, "%s: rank %d ended with status 0x%x\n", name, rank, status);
      for (int other = 0; other < ranks; ++other) kill(children[other], SIGKILL);
    }
  }
  return failures;
}

static int run_forked(const char* name, int ranks, rank_body body) {
  pid_t children[MOST_PROCESSES];
  for (int rank = 0; rank < ranks; ++rank) {
    children[rank] = fork();
    if (children[rank] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    be_rank(rank, ranks, body);
    exit(0);
  }
  return reap(name, children, ranks);
}

int run_ranks(const char* name, int ranks, rank_body body) {
  const int keep = crew_is_wanted() && expected_signal == 0;
  if (pages == NULL)
    pages = mmap(NULL, sizeof *pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  memset(pages, 0, sizeof *pages);
  const int failures = keep ? run_on_crew(name, ranks, be_rank, body) : run_forked(name, ranks, body);
  printf("%-44s %d ranks: %s\n", name, ranks, failures == 0 ? "ok" : "FAILED");
  fflush(stdout);
  return failures;
}

ncclConfig_t not_blocking(void) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclComm_t connect_ranks(int rank, int ranks) {
  ncclUniqueId id;
  ncclComm_t comm;
  if (rank == 0) NCCL(ncclGetUniqueId(&id));
  share(0, rank, &id, sizeof id);
  NCCL(ncclCommInitRank(&comm, ranks, id, rank));
  return comm;
}

void check_works(ncclComm_t comm, int ranks, int rank) {
  int found = -1, *number;
  NCCL(ncclCommCount(comm, &found));
  CHECK(found == ranks, "%d ranks", found);
  NCCL(ncclCommUserRank(comm, &found));
  CHECK(found == rank, "rank %d", found);
  CUDA(cudaMalloc((void**)&number, sizeof *number));
  CUDA(cudaMemcpy(number, &rank, sizeof rank, cudaMemcpyHostToDevice));
  NCCL(ncclAllReduce(number, number, 1, ncclInt32, ncclSum, comm, NULL));
  CUDA(cudaStreamSynchronize(NULL));
  CUDA(cudaMemcpy(&found, number, sizeof found, cudaMemcpyDeviceToHost));
  CHECK(found == ranks * (ranks - 1) / 2, "the sum is %d", found);
  CUDA(cudaFree(number));
}

/* The state, once it is another. */
static ncclResult_t await_end_of(ncclResult_t passing, ncclComm_t comm) {
  ncclResult_t state = passing;
  while (state == passing) {
    NCCL(ncclCommGetAsyncError(comm, &state));
    usleep(200);
  }
  return state;
}

ncclResult_t await_state(ncclComm_t comm) { return await_end_of(ncclInProgress, comm); }
ncclResult_t await_failure(ncclComm_t comm) { return await_end_of(ncclSuccess, comm); }

int device_of(int rank) {
  int devices = 0;
  CUDA(cudaGetDeviceCount(&devices));
  return rank % devices;
}

void check_refused(ncclResult_t result, ncclResult_t code, const char* word, const char* call,
                   const char* file, int line) {
  const char* text = ncclGetLastError(NULL);
  const char* ends = strstr(text, ": "); /* of the function's name, which is told once */
  const size_t name = ends != NULL ? (size_t)(ends - text) + 2 : 0;
  const int told_once = name > 0 && strncmp(text, text + name, name) != 0;
  if (result == code && strstr(text, word) != NULL && told_once) return;
  fprintf(stderr, "%s:%d: %s gave %d (\"%s\"), not %d with \"%s\"\n", file, line, call, result, text, code,
          word);
  exit(1);
}
