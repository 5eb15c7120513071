/* The C API from C: two ranks as threads call everything once. Exit status 0 = all right. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lockstep/lockstep.h"

enum { kRanks = 2, kCount = 1000 };

#define CHECK(condition)                                                                             \
  do {                                                                                               \
    if (!(condition)) {                                                                              \
      fprintf(stderr, "line %d: %s\nlast error: %s\n", __LINE__, #condition, lockstep_last_error()); \
      exit(1);                                                                                       \
    }                                                                                                \
  } while (0)
#define OK(call) CHECK((call) == LOCKSTEP_OK)

static void fill(float* data, size_t count, float value) {
  for (size_t i = 0; i < count; ++i) data[i] = value;
}

static void take_larger(const void* in, void* inout, size_t count, void* context) {
  (void)context;
  for (size_t i = 0; i < count; ++i) {
    const float a = ((const float*)in)[i];
    if (a > ((float*)inout)[i]) ((float*)inout)[i] = a;
  }
}

static void reductions(lockstep_comm_t comm, float rank) {
  float in[kRanks * kCount], out[kRanks * kCount];
  lockstep_options_t options = LOCKSTEP_OPTIONS_INIT;
  fill(in, kRanks * kCount, rank + 1);
  OK(lockstep_all_reduce(comm, in, out, kCount, LOCKSTEP_F32, LOCKSTEP_SUM, NULL, NULL));
  CHECK(out[kCount - 1] == 3);
  OK(lockstep_reduce(comm, in, out, kCount, LOCKSTEP_F32, LOCKSTEP_MAX, 1, &options, NULL));
  CHECK(rank != 1 || out[0] == 2);
  OK(lockstep_reduce_scatter(comm, in, out, kCount, LOCKSTEP_F32, LOCKSTEP_AVG, NULL, NULL));
  CHECK(out[0] == 1.5f);
  options.combine = take_larger;
  OK(lockstep_all_reduce(comm, in, out, kCount, LOCKSTEP_F32, LOCKSTEP_USER, &options, NULL));
  CHECK(out[7] == 2);
  const size_t counts[kRanks] = {3, 5};
  OK(lockstep_reduce_scatter_v(comm, in, out, counts, LOCKSTEP_F32, LOCKSTEP_SUM, NULL, NULL));
  CHECK(out[2] == 3);
}

static void movements(lockstep_comm_t comm, float rank) {
  float in[kRanks * kCount], out[kRanks * kCount];
  const int self = (int)rank, other = 1 - self;
  fill(in, kRanks * kCount, rank);
  OK(lockstep_all_gather(comm, in, out, kCount, LOCKSTEP_F32, NULL, NULL));
  CHECK(out[0] == 0 && out[kCount] == 1);
  OK(lockstep_all_to_all(comm, in, out, kCount, LOCKSTEP_F32, NULL, NULL));
  CHECK(out[0] == 0 && out[kCount] == 1);
  OK(lockstep_gather(comm, in, out, kCount, LOCKSTEP_F32, 0, NULL, NULL));
  OK(lockstep_scatter(comm, in, out, kCount, LOCKSTEP_F32, 1, NULL, NULL));
  CHECK(out[0] == 1);
  OK(lockstep_broadcast(comm, in, kCount, LOCKSTEP_F32, 1, NULL, NULL));
  CHECK(in[kCount - 1] == 1);
  const size_t counts[kRanks] = {3, 5}, same[kRanks] = {2, 2};
  OK(lockstep_all_gather_v(comm, in, out, counts, LOCKSTEP_F32, NULL, NULL));
  OK(lockstep_gather_v(comm, in, counts[self], out, counts, LOCKSTEP_F32, 0, NULL, NULL));
  OK(lockstep_scatter_v(comm, in, counts, out, counts[self], LOCKSTEP_F32, 0, NULL, NULL));
  OK(lockstep_all_to_all_v(comm, in, same, out, same, LOCKSTEP_F32, NULL, NULL));
  OK(lockstep_barrier(comm, NULL, NULL));

  int from = -1, tag = -1;
  size_t received = 0;
  lockstep_work_t work = NULL;
  OK(lockstep_send(comm, in, 10, LOCKSTEP_F32, other, 4, NULL, &work));
  OK(lockstep_recv(comm, out, 20, LOCKSTEP_F32, LOCKSTEP_ANY_SOURCE, LOCKSTEP_ANY_TAG, NULL, &from, &tag,
                   &received, NULL));
  CHECK(from == other && tag == 4 && received == 10);
  OK(lockstep_work_wait(work));
  lockstep_work_free(work);
}

static void works(lockstep_comm_t comm, float rank) {
  float a[kCount], b[kCount], c[kCount];
  int done = 0;
  lockstep_work_t work = NULL;
  lockstep_batch_t batch = NULL;
  lockstep_plan_t plan = NULL;
  fill(a, kCount, 1);
  fill(b, kCount, 2);
  OK(lockstep_batch_create(comm, &batch));
  OK(lockstep_batch_all_reduce(batch, a, a, kCount, LOCKSTEP_F32, LOCKSTEP_SUM));
  OK(lockstep_batch_send(batch, b, kCount, LOCKSTEP_F32, 1 - (int)rank, 0));
  OK(lockstep_batch_recv(batch, c, kCount, LOCKSTEP_F32, 1 - (int)rank, 0));
  OK(lockstep_batch_submit(batch, &work));
  while (!done) OK(lockstep_work_wait_for(work, 1000, &done));
  OK(lockstep_work_test(work, &done));
  CHECK(done && a[0] == 2 && c[kCount - 1] == 2);
  lockstep_work_free(work);
  lockstep_batch_free(batch);
  OK(lockstep_plan_all_reduce(comm, b, c, kCount, LOCKSTEP_F32, LOCKSTEP_SUM, NULL, &plan));
  for (int i = 0; i < 3; ++i) OK(lockstep_plan_start(plan, NULL));
  CHECK(c[0] == 4);
  lockstep_plan_free(plan);
}

static void gradients(lockstep_comm_t comm, float rank) {
  const size_t shape[] = {3, 4};
  float values[12], *gradient = NULL;
  double norm = 0;
  int goes_on = 0;
  lockstep_reducer_t reducer = NULL;
  fill(values, 12, rank);
  const lockstep_parameter_t parameters[] = {{"weight", LOCKSTEP_F32, shape, 2, values, NULL},
                                             {NULL, LOCKSTEP_F32, NULL, 0, values, NULL}};
  OK(lockstep_reducer_create(comm, parameters, 2, NULL, &reducer));
  CHECK(values[11] == 0); /* rank 0's */
  for (int step = 0; step < 2; ++step) {
    OK(lockstep_reducer_begin_step(reducer, 1, &goes_on));
    CHECK(goes_on);
    OK(lockstep_reducer_no_sync(reducer, 1));
    OK(lockstep_reducer_mark_ready(reducer, 0));
    OK(lockstep_reducer_wait(reducer));
    OK(lockstep_reducer_no_sync(reducer, 0));
    for (size_t i = 2; i-- > 0;) {
      OK(lockstep_reducer_gradient(reducer, i, (void**)&gradient));
      fill(gradient, i == 0 ? 12 : 1, 2 * rank);
      OK(lockstep_reducer_mark_ready(reducer, i));
    }
    OK(lockstep_reducer_wait(reducer));
    CHECK(gradient[0] == 1 && gradient[11] == 1);
  }
  OK(lockstep_reducer_clip(reducer, 1e9, &norm));
  CHECK(norm * norm > 12.99 && norm * norm < 13.01);
  CHECK(strstr(lockstep_reducer_report(reducer), "step 2: ") != NULL);
  CHECK(lockstep_reducer_mark_ready(reducer, 2) == LOCKSTEP_INVALID_ARGUMENT);
  float more[3];
  fill(more, 3, rank);
  const lockstep_parameter_t joins = {NULL, LOCKSTEP_F32, shape, 1, more, NULL};
  OK(lockstep_reducer_add_parameters(reducer, &joins, 1));
  CHECK(more[2] == 0); /* rank 0's */
  for (size_t i = 3; i-- > 0;) {
    OK(lockstep_reducer_gradient(reducer, i, (void**)&gradient));
    gradient[0] = 2 * rank;
    OK(lockstep_reducer_mark_ready(reducer, i));
  }
  OK(lockstep_reducer_wait(reducer));
  OK(lockstep_reducer_gradient(reducer, 2, (void**)&gradient));
  CHECK(gradient[0] == 1);
  CHECK(lockstep_reducer_wait(NULL) == LOCKSTEP_INVALID_ARGUMENT);
  const lockstep_reducer_options_t options = {.hook = "none of these"};
  lockstep_reducer_t other = NULL;
  CHECK(lockstep_reducer_create(comm, parameters, 2, &options, &other) == LOCKSTEP_INVALID_ARGUMENT);
  lockstep_reducer_free(reducer);
  const lockstep_reducer_options_t overlapping = {.overlap_forward = 1};
  OK(lockstep_reducer_create(comm, parameters, 2, &overlapping, &reducer));
  for (size_t i = 2; i-- > 0;) {
    OK(lockstep_reducer_gradient(reducer, i, (void**)&gradient));
    gradient[0] = 2 * rank;
    OK(lockstep_reducer_mark_ready(reducer, i));
  }
  OK(lockstep_reducer_wait(reducer));
  OK(lockstep_reducer_wait_gradients(reducer, 0));
  CHECK(gradient[0] == 1);
  OK(lockstep_reducer_wait_gradients(reducer, LOCKSTEP_ALL_GRADIENTS));
  CHECK(lockstep_reducer_wait_gradients(reducer, 2) == LOCKSTEP_INVALID_ARGUMENT);
  lockstep_reducer_free(reducer);
}

static void* run_rank(void* argument) {
  lockstep_comm_t comm = argument, part = NULL;
  const float rank = (float)lockstep_rank(comm);
  CHECK(lockstep_size(comm) == kRanks);
  reductions(comm, rank);
  movements(comm, rank);
  works(comm, rank);
  gradients(comm, rank);
  OK(lockstep_split(comm, (int)rank, 0, &part));
  CHECK(lockstep_size(part) == 1);
  lockstep_comm_free(part);
  /* A wrong call: a code, a text, a culprit, and a communicator that is revoked. */
  const lockstep_error_t error =
      lockstep_all_reduce(comm, NULL, NULL, 5, LOCKSTEP_F32, LOCKSTEP_SUM, NULL, NULL);
  CHECK(error == LOCKSTEP_INVALID_ARGUMENT || error == LOCKSTEP_REFUSED);
  CHECK(strstr(lockstep_last_error(), "input is null") != NULL);
  CHECK(lockstep_state(comm) != LOCKSTEP_OK);
  return NULL;
}

int main(void) {
  lockstep_comm_t comms[kRanks] = {NULL, NULL};
  pthread_t threads[kRanks];
  void* memory = NULL;
  CHECK(lockstep_type_size(LOCKSTEP_BF16) == 2);
  OK(lockstep_allocate(4096, &memory));
  lockstep_free(memory);
  CHECK(lockstep_barrier(NULL, NULL, NULL) == LOCKSTEP_INVALID_ARGUMENT);
  CHECK(strstr(lockstep_last_error(), "comm is NULL") != NULL);
  CHECK(lockstep_allocate(4096, NULL) == LOCKSTEP_INVALID_ARGUMENT);
  CHECK(strstr(lockstep_last_error(), "pointer is NULL") != NULL);
  CHECK(lockstep_state(NULL) == LOCKSTEP_INVALID_ARGUMENT);
  CHECK(strstr(lockstep_last_error(), "comm is NULL") != NULL);
  CHECK(lockstep_local_group(0, NULL, comms) == LOCKSTEP_INVALID_ARGUMENT);
  OK(lockstep_local_group(kRanks, NULL, comms));
  for (int r = 0; r < kRanks; ++r) CHECK(pthread_create(&threads[r], NULL, run_rank, comms[r]) == 0);
  for (int r = 0; r < kRanks; ++r) pthread_join(threads[r], NULL);
  for (int r = 0; r < kRanks; ++r) lockstep_comm_free(comms[r]);
  return 0;
}
