// The processor time that this process has taken, all its threads together.
#pragma once

#include <time.h>

#include <chrono>

namespace lockstep::testing {

inline std::chrono::nanoseconds cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace lockstep::testing
