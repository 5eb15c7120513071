// The clock of the harness beside peers and of the machine's limits.
#pragma once

#include <time.h>

namespace lockstep::bench {

/// Microseconds since some moment.
inline double now_us() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

}  // namespace lockstep::bench
