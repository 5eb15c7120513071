/* Processes that stay from body to body where TEST_CREW is 1, as in tools/gpu-check: on a GPU each takes a
 * second to start (tests/device/communicator/crew.hpp is the same for C++). */
#ifndef TESTS_NCCL_CREW_H
#define TESTS_NCCL_CREW_H

#include "ranks.h"

int crew_is_wanted(void);
/* be_rank(rank, ranks, body) in `ranks` processes. Number of failures: whose check fails ends, and the crew
 * with it; the next run gets a new one. */
int run_on_crew(const char* name, int ranks, void (*be_rank)(int rank, int ranks, rank_body body),
                rank_body body);

#endif
