/* The C API from C: two ranks as threads call all that does not need processes. Exit status 0 = all right. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/engine/c_api_check.h"

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
  fill(out, kRanks * kCount, 9);
  OK(lockstep_gather(comm, in, out, kCount, LOCKSTEP_F32, 0, NULL, NULL));
  CHECK(self == 0 ? out[0] == 0 && out[kCount] == 1 : out[0] == 9 && out[kCount] == 9);
  OK(lockstep_scatter(comm, in, out, kCount, LOCKSTEP_F32, 1, NULL, NULL));
  CHECK(out[0] == 1);
  OK(lockstep_broadcast(comm, in, kCount, LOCKSTEP_F32, 1, NULL, NULL));
  CHECK(in[kCount - 1] == 1);
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

/* Counts that differ by rank, and in all_to_all_v by pair: blocks lie one after the other. */
static void uneven_movements(lockstep_comm_t comm, int self) {
  const size_t counts[kRanks] = {3, 5}, send[kRanks][kRanks] = {{1, 2}, {3, 4}};
  const size_t recv[kRanks][kRanks] = {{1, 3}, {2, 4}};
  float in[8], out[8];
  for (int i = 0; i < 8; ++i) in[i] = (float)(10 * self + i);
  fill(out, 8, 9);
  OK(lockstep_all_gather_v(comm, in, out, counts, LOCKSTEP_F32, NULL, NULL));
  CHECK(out[0] == 0 && out[2] == 2 && out[3] == 10 && out[7] == 14);
  fill(out, 8, 9);
  OK(lockstep_gather_v(comm, in, counts[self], out, self == 0 ? counts : NULL, LOCKSTEP_F32, 0, NULL, NULL));
  CHECK(self == 0 ? out[2] == 2 && out[3] == 10 && out[7] == 14 : out[0] == 9 && out[7] == 9);
  fill(out, 8, 9);
  OK(lockstep_scatter_v(comm, in, self == 1 ? counts : NULL, out, counts[self], LOCKSTEP_F32, 1, NULL, NULL));
  CHECK(self == 0 ? out[0] == 10 && out[2] == 12 && out[3] == 9
                  : out[0] == 13 && out[4] == 17 && out[5] == 9);
  fill(out, 8, 9);
  OK(lockstep_all_to_all_v(comm, in, send[self], out, recv[self], LOCKSTEP_F32, NULL, NULL));
  CHECK(self == 0 ? out[0] == 0 && out[1] == 10 && out[3] == 12 && out[4] == 9
                  : out[0] == 1 && out[1] == 2 && out[2] == 13 && out[5] == 16 && out[6] == 9);
}

/* The other form of a call: it returns at once. */
static void finish(lockstep_work_t* work) {
  CHECK(*work != NULL);
  OK(lockstep_work_wait(*work));
  lockstep_work_free(*work);
  *work = NULL;
}

/* Every collective with a `work`. */
static void started(lockstep_comm_t comm, int self) {
  const size_t ones[kRanks] = {1, 1};
  const float in[kRanks] = {(float)(self + 1), (float)(self + 3)};
  float out[kRanks], buffer = (float)self;
  lockstep_work_t work = NULL;
  OK(lockstep_all_reduce(comm, in, out, 2, LOCKSTEP_F32, LOCKSTEP_SUM, NULL, &work));
  finish(&work);
  CHECK(out[0] == 3 && out[1] == 7);
  OK(lockstep_reduce(comm, in, out, 2, LOCKSTEP_F32, LOCKSTEP_PROD, 1, NULL, &work));
  finish(&work);
  CHECK(self == 0 || (out[0] == 2 && out[1] == 12));
  OK(lockstep_broadcast(comm, &buffer, 1, LOCKSTEP_F32, 1, NULL, &work));
  finish(&work);
  CHECK(buffer == 1);
  OK(lockstep_scatter(comm, in, out, 1, LOCKSTEP_F32, 1, NULL, &work));
  finish(&work);
  CHECK(out[0] == (float)(2 + 2 * self));
  OK(lockstep_gather(comm, in, out, 1, LOCKSTEP_F32, 0, NULL, &work));
  finish(&work);
  CHECK(self == 1 || (out[0] == 1 && out[1] == 2));
  OK(lockstep_all_gather(comm, in, out, 1, LOCKSTEP_F32, NULL, &work));
  finish(&work);
  CHECK(out[0] == 1 && out[1] == 2);
  OK(lockstep_reduce_scatter(comm, in, out, 1, LOCKSTEP_F32, LOCKSTEP_MAX, NULL, &work));
  finish(&work);
  CHECK(out[0] == (float)(2 + 2 * self));
  OK(lockstep_all_to_all(comm, in, out, 1, LOCKSTEP_F32, NULL, &work));
  finish(&work);
  CHECK(out[0] == (float)(1 + 2 * self) && out[1] == (float)(2 + 2 * self));
  OK(lockstep_barrier(comm, NULL, &work));
  finish(&work);
  OK(lockstep_scatter_v(comm, in, ones, out, 1, LOCKSTEP_F32, 1, NULL, &work));
  finish(&work);
  CHECK(out[0] == (float)(2 + 2 * self));
  OK(lockstep_gather_v(comm, in, 1, out, ones, LOCKSTEP_F32, 0, NULL, &work));
  finish(&work);
  CHECK(self == 1 || (out[0] == 1 && out[1] == 2));
  OK(lockstep_all_gather_v(comm, in, out, ones, LOCKSTEP_F32, NULL, &work));
  finish(&work);
  CHECK(out[0] == 1 && out[1] == 2);
  OK(lockstep_reduce_scatter_v(comm, in, out, ones, LOCKSTEP_F32, LOCKSTEP_MIN, NULL, &work));
  finish(&work);
  CHECK(out[0] == (float)(1 + 2 * self));
  OK(lockstep_all_to_all_v(comm, in, ones, out, ones, LOCKSTEP_F32, NULL, &work));
  finish(&work);
  CHECK(out[0] == (float)(1 + 2 * self) && out[1] == (float)(2 + 2 * self));
}

/* A receive that nobody has sent to yet goes on, whatever is asked of it, and without its handle too. */
static void receives(lockstep_comm_t comm, int rank) {
  const float sent[3] = {5, 6, 7};
  float got[4] = {0}, dropped = 0, next = 0;
  int from = -1, tag = -1, done = -1;
  size_t count = 0;
  lockstep_work_t work = NULL, forgotten = NULL;
  if (rank == 1) {
    OK(lockstep_recv(comm, NULL, 0, LOCKSTEP_F32, 0, 1, NULL, NULL, NULL, NULL, NULL)); /* Now. */
    OK(lockstep_send(comm, sent, 3, LOCKSTEP_F32, 0, 8, NULL, NULL));
    for (int i = 0; i < 2; ++i) OK(lockstep_send(comm, sent + i, 1, LOCKSTEP_F32, 0, 9, NULL, NULL));
    return;
  }
  OK(lockstep_recv(comm, &dropped, 1, LOCKSTEP_F32, 1, 9, NULL, NULL, NULL, NULL, &forgotten));
  lockstep_work_free(forgotten);
  OK(lockstep_recv(comm, got, 4, LOCKSTEP_F32, LOCKSTEP_ANY_SOURCE, LOCKSTEP_ANY_TAG, NULL, NULL, NULL, NULL,
                   &work));
  OK(lockstep_work_test(work, &done));
  CHECK(done == 0);
  done = -1;
  OK(lockstep_work_wait_for(work, 1000, &done));
  CHECK(done == 0);
  OK(lockstep_send(comm, NULL, 0, LOCKSTEP_F32, 1, 1, NULL, NULL));
  OK(lockstep_work_wait(work));
  OK(lockstep_work_wait(work)); /* Once more is no error. */
  OK(lockstep_work_status(work, &from, &tag, &count));
  CHECK(from == 1 && tag == 8 && count == 3 && got[2] == 7 && got[3] == 0);
  OK(lockstep_work_status(work, NULL, NULL, NULL));
  lockstep_work_free(work);
  OK(lockstep_recv(comm, &next, 1, LOCKSTEP_F32, 1, 9, NULL, NULL, NULL, NULL, NULL));
  CHECK(dropped == 5 && next == 6); /* In order, so the first is there too. */
}

static void batches(lockstep_comm_t comm, int rank) {
  float a[kCount], b[kCount], c[kCount];
  int done = 0;
  lockstep_work_t work = NULL;
  lockstep_batch_t batch = NULL;
  fill(a, kCount, 1);
  fill(b, kCount, 2);
  OK(lockstep_batch_create(comm, &batch));
  OK(lockstep_batch_all_reduce(batch, a, a, kCount, LOCKSTEP_F32, LOCKSTEP_SUM, NULL));
  OK(lockstep_batch_send(batch, b, kCount, LOCKSTEP_F32, 1 - rank, 0, NULL));
  OK(lockstep_batch_recv(batch, c, kCount, LOCKSTEP_F32, 1 - rank, 0, NULL));
  CHECK(lockstep_batch_send(batch, b, kCount, LOCKSTEP_F32, kRanks, 0, NULL) == LOCKSTEP_INVALID_ARGUMENT);
  CHECK(strstr(lockstep_last_error(), "destination 2 is out of range") != NULL);
  CHECK(a[0] == 1); /* Nothing starts before submit. */
  OK(lockstep_batch_submit(batch, &work));
  while (!done) OK(lockstep_work_wait_for(work, 1000, &done));
  OK(lockstep_work_test(work, &done));
  CHECK(done && a[0] == 2 && c[kCount - 1] == 2);
  lockstep_work_free(work);
  /* What was submitted is in it no more. */
  fill(b, kCount, (float)rank);
  OK(lockstep_batch_broadcast(batch, b, kCount, LOCKSTEP_F32, 1, NULL));
  OK(lockstep_batch_submit(batch, NULL));
  CHECK(a[0] == 2 && b[0] == 1 && b[kCount - 1] == 1);
  OK(lockstep_batch_submit(batch, NULL));
  lockstep_batch_free(batch);
}

/* Runs a plan to its end, in both ways. */
static void run(lockstep_plan_t plan, int turn) {
  lockstep_work_t work = NULL;
  OK(lockstep_plan_start(plan, turn % 2 == 0 ? NULL : &work));
  if (turn % 2 == 1) finish(&work);
}

static void plans(lockstep_comm_t comm, int rank) {
  float sum[kCount], in[kRanks * kCount], out[kRanks * kCount], own[kCount], all[kRanks * kCount];
  float buffer[kCount];
  lockstep_plan_t reduces = NULL, broadcasts = NULL, gathers = NULL, scatters = NULL;
  lockstep_options_t options = LOCKSTEP_OPTIONS_INIT;
  options.timeout_ms = 60000;
  OK(lockstep_plan_all_reduce(comm, in, sum, kCount, LOCKSTEP_F32, LOCKSTEP_SUM, NULL, &reduces));
  OK(lockstep_plan_broadcast(comm, buffer, kCount, LOCKSTEP_F32, 1, &options, &broadcasts));
  OK(lockstep_plan_all_gather(comm, own, all, kCount, LOCKSTEP_F32, NULL, &gathers));
  OK(lockstep_plan_reduce_scatter(comm, in, out, kCount, LOCKSTEP_F32, LOCKSTEP_MAX, NULL, &scatters));
  for (int turn = 0; turn < 4; ++turn) {
    fill(in, kCount, (float)(turn + rank));
    fill(in + kCount, kCount, (float)(10 * turn - rank));
    fill(own, kCount, (float)(turn * 10 + rank));
    fill(buffer, kCount, (float)(turn + 7 * rank));
    run(reduces, turn);
    CHECK(sum[0] == (float)(2 * turn + 1) && sum[kCount - 1] == sum[0]);
    run(broadcasts, turn);
    CHECK(buffer[0] == (float)(turn + 7) && buffer[kCount - 1] == buffer[0]);
    run(gathers, turn);
    CHECK(all[0] == (float)(turn * 10) && all[kRanks * kCount - 1] == (float)(turn * 10 + 1));
    run(scatters, turn);
    CHECK(out[0] == (float)(rank == 0 ? turn + 1 : 10 * turn) && out[kCount - 1] == out[0]);
  }
  lockstep_plan_free(reduces);
  lockstep_plan_free(broadcasts);
  lockstep_plan_free(gathers);
  lockstep_plan_free(scatters);
}

/* Foreign memory, registered on one rank only, keeps its bytes and takes part like any other. */
static void registered_memory(lockstep_comm_t comm, int rank) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 16 * page / sizeof(float);
  float* data = aligned_alloc(page, 16 * page);
  CHECK(data != NULL);
  fill(data, count, (float)(rank + 1));
  if (rank == 0) {
    OK(lockstep_register(data, 16 * page));
    CHECK(data[0] == 1 && data[count - 1] == 1);
    CHECK(lockstep_register(data, page) == LOCKSTEP_INVALID_ARGUMENT);
    CHECK(strstr(lockstep_last_error(), "registered already") != NULL);
  } else {
    CHECK(lockstep_register((char*)data + 1, page) == LOCKSTEP_INVALID_ARGUMENT);
    CHECK(strstr(lockstep_last_error(), "multiples of the page size") != NULL);
    CHECK(lockstep_register(NULL, page) == LOCKSTEP_INVALID_ARGUMENT);
  }
  OK(lockstep_all_reduce(comm, data, data, count, LOCKSTEP_F32, LOCKSTEP_SUM, NULL, NULL));
  CHECK(data[0] == 3 && data[count - 1] == 3);
  if (rank == 0) OK(lockstep_deregister(data));
  CHECK(data[0] == 3 && data[count - 1] == 3);
  CHECK(lockstep_deregister(data) == LOCKSTEP_INVALID_ARGUMENT);
  CHECK(strstr(lockstep_last_error(), "not the start of a registered buffer") != NULL);
  free(data);
}

static void* run_rank(void* argument) {
  lockstep_comm_t comm = argument, part = NULL;
  const float rank = (float)lockstep_rank(comm);
  CHECK(lockstep_size(comm) == kRanks);
  reductions(comm, rank);
  movements(comm, rank);
  uneven_movements(comm, (int)rank);
  started(comm, (int)rank);
  receives(comm, (int)rank);
  batches(comm, (int)rank);
  plans(comm, (int)rank);
  registered_memory(comm, (int)rank);
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
  unsigned char* memory = NULL;
  CHECK(strcmp(lockstep_version(), LOCKSTEP_VERSION) == 0);
  CHECK(lockstep_type_size(LOCKSTEP_BF16) == 2);
  OK(lockstep_allocate(4096, (void**)&memory));
  CHECK(memory[0] == 0 && memory[4095] == 0);
  lockstep_free(memory);
  lockstep_free(NULL);
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
