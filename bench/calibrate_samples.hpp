// What --calibrate measures: every algorithm at a few sizes, in one world of forked ranks.
#pragma once

#include <vector>

#include "bench/options.hpp"
#include "collectives/select/fit.hpp"

namespace lockstep::bench {

/// One forked world.
struct CalibrationWorld {
  int ranks;
  const char* transport;  ///< "shm", "tcp"
  int cores;              ///< More ranks than that are crowded.
  int rounds;             ///< Of each measurement; 0: as many as fit the time.
};

/// Measured calls of all algorithms that run in such a world. Throws std::runtime_error when a rank failed.
std::vector<internal::Sample> sample_world(const CalibrationWorld& world);

/// Seconds of the smallest all_reduce, whose payload rides in the flags' lines; in a world over shared
/// memory.
double sample_inline(const CalibrationWorld& world);

/// How many TCP connections per peer to use: more than one only where that is clearly faster for long
/// messages.
int sample_tcp_sockets();

}  // namespace lockstep::bench
