/* What the C API's tests in C share. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "lockstep/lockstep.h"

enum { kRanks = 2, kCount = 1000 };

#define CHECK(condition)                                                                                     \
  do {                                                                                                       \
    if (!(condition)) {                                                                                      \
      fprintf(stderr, "%s:%d: %s\nlast error: %s\n", __FILE__, __LINE__, #condition, lockstep_last_error()); \
      exit(1);                                                                                               \
    }                                                                                                        \
  } while (0)
#define OK(call) CHECK((call) == LOCKSTEP_OK)

static inline void fill(float* data, size_t count, float value) {
  for (size_t i = 0; i < count; ++i) data[i] = value;
}

/* The reducer's part, in c_api_gradients.c. */
void gradients(lockstep_comm_t comm, float rank);
