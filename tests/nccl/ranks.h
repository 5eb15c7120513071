/* Ranks as forked processes, for programs written against nccl.h alone. */
#ifndef TESTS_NCCL_RANKS_H
#define TESTS_NCCL_RANKS_H

#include <cuda_runtime_api.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

/* A failed check ends this process with status 1; the others are ended with it. */
#define CHECK(condition, ...)                                         \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition); \
      fprintf(stderr, "" __VA_ARGS__);                                \
      fprintf(stderr, "\n");                                          \
      exit(1);                                                        \
    }                                                                 \
  } while (0)
#define NCCL(call)                                                                                \
  do {                                                                                            \
    const ncclResult_t result_ = (call);                                                          \
    CHECK(result_ == ncclSuccess, "%s, %s", ncclGetErrorString(result_), ncclGetLastError(NULL)); \
  } while (0)
#define CUDA(call)                                                  \
  do {                                                              \
    const cudaError_t error_ = (call);                              \
    CHECK(error_ == cudaSuccess, "%s", cudaGetErrorString(error_)); \
  } while (0)
/* The call is refused with this code, and a text that has this word. */
#define REFUSED(call, code, word) check_refused((call), (code), (word), #call, __FILE__, __LINE__)

enum { MOST_PROCESSES = 16 };
/* Runs body(rank, ranks) in `ranks` processes; 0 when all ended with exit status 0. A rank that ends
 * otherwise ends the others, and an alarm ends all. */
typedef void (*rank_body)(int rank, int ranks);
int run_ranks(const char* name, int ranks, rank_body body);
/* Each process may end by this signal (a test that kills one), 0 is none. Set before run_ranks. */
extern int expected_signal;

/* Of all processes of run_ranks: */
void meet(void);
/* `bytes` (at most 4096) of process `from` reach all. */
void share(int from, int rank, void* data, size_t bytes);

/* Of calls that do not wait for other ranks. */
ncclConfig_t not_blocking(void);
/* A communicator of all processes, by an id that process 0 makes. */
ncclComm_t connect_ranks(int rank, int ranks);
/* The communicator has this many ranks, this is that one, and it works. */
void check_works(ncclComm_t comm, int ranks, int rank);
/* Of a communicator, once it is no longer ncclInProgress. */
ncclResult_t await_state(ncclComm_t comm);
/* Of one that is about to fail, once it has. */
ncclResult_t await_failure(ncclComm_t comm);
/* The device of a rank: of a machine with fewer devices, several ranks share one. */
int device_of(int rank);

void check_refused(ncclResult_t result, ncclResult_t code, const char* word, const char* call,
                   const char* file, int line);

#endif
