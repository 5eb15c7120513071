/* The reducer of the C API from C, on one of two ranks. */
#include <string.h>

#include "tests/engine/c_api_check.h"

/* The first element of each gradient is `value`. Gives the gradient of number 0. */
static float* mark_all(lockstep_reducer_t reducer, size_t parameters, float value) {
  float* gradient = NULL;
  for (size_t i = parameters; i-- > 0;) {
    OK(lockstep_reducer_gradient(reducer, i, (void**)&gradient));
    gradient[0] = value;
    OK(lockstep_reducer_mark_ready(reducer, i));
  }
  return gradient;
}

/* A micro-batch and a whole one. */
static void accumulated_step(lockstep_reducer_t reducer, float rank) {
  float* gradient = NULL;
  int goes_on = 0;
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

static void joined(lockstep_reducer_t reducer, float rank) {
  const size_t shape[] = {3};
  float more[3], *gradient = NULL;
  fill(more, 3, rank);
  const lockstep_parameter_t joins = {NULL, LOCKSTEP_F32, shape, 1, more, NULL};
  OK(lockstep_reducer_add_parameters(reducer, &joins, 1));
  CHECK(more[2] == 0); /* rank 0's */
  mark_all(reducer, 3, 2 * rank);
  OK(lockstep_reducer_wait(reducer));
  OK(lockstep_reducer_gradient(reducer, 2, (void**)&gradient));
  CHECK(gradient[0] == 1);
}

static void overlapping(lockstep_comm_t comm, const lockstep_parameter_t* parameters, float rank) {
  const lockstep_reducer_options_t options = {.overlap_forward = 1};
  lockstep_reducer_t reducer = NULL;
  OK(lockstep_reducer_create(comm, parameters, 2, &options, &reducer));
  const float* const gradient = mark_all(reducer, 2, 2 * rank);
  OK(lockstep_reducer_wait(reducer));
  OK(lockstep_reducer_wait_gradients(reducer, 0));
  CHECK(gradient[0] == 1);
  OK(lockstep_reducer_wait_gradients(reducer, LOCKSTEP_ALL_GRADIENTS));
  CHECK(lockstep_reducer_wait_gradients(reducer, 2) == LOCKSTEP_INVALID_ARGUMENT);
  lockstep_reducer_free(reducer);
}

void gradients(lockstep_comm_t comm, float rank) {
  const size_t shape[] = {3, 4};
  float values[12];
  double norm = 0;
  lockstep_reducer_t reducer = NULL, other = NULL;
  fill(values, 12, rank);
  const lockstep_parameter_t parameters[] = {{"weight", LOCKSTEP_F32, shape, 2, values, NULL},
                                             {NULL, LOCKSTEP_F32, NULL, 0, values, NULL}};
  OK(lockstep_reducer_create(comm, parameters, 2, NULL, &reducer));
  CHECK(values[11] == 0); /* rank 0's */
  for (int step = 0; step < 2; ++step) accumulated_step(reducer, rank);
  OK(lockstep_reducer_clip(reducer, 1e9, &norm));
  CHECK(norm * norm > 12.99 && norm * norm < 13.01);
  CHECK(strstr(lockstep_reducer_report(reducer), "step 2: ") != NULL);
  CHECK(lockstep_reducer_mark_ready(reducer, 2) == LOCKSTEP_INVALID_ARGUMENT);
  joined(reducer, rank);
  CHECK(lockstep_reducer_wait(NULL) == LOCKSTEP_INVALID_ARGUMENT);
  const lockstep_reducer_options_t options = {.hook = "none of these"};
  CHECK(lockstep_reducer_create(comm, parameters, 2, &options, &other) == LOCKSTEP_INVALID_ARGUMENT);
  lockstep_reducer_free(reducer);
  overlapping(comm, parameters, rank);
}
