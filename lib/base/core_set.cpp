#include "lib/base/core_set.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace lockstep::internal {

CoreSet allowed_cores() {
  static_assert(kMaxCores == CPU_SETSIZE);
  CoreSet cores;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    for (std::size_t core = 0; core < kMaxCores; ++core) cores[core] = CPU_ISSET(core, &mask);
  } else {  // More cores than a mask holds.
    const auto online = static_cast<std::size_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    for (std::size_t core = 0; core < std::min(online, kMaxCores); ++core) cores[core] = true;
  }
  return cores;
}

}  // namespace lockstep::internal
