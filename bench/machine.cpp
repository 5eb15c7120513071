#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <string>

#include "bench/report.hpp"

namespace lockstep::bench {
namespace {

// /proc/cpuinfo has "model name" on x86; on ARM it has only numbers, which say less than the architecture's
// name.
std::string processor(const std::string& otherwise) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return otherwise;
}

// Those that this process may run on.
int cores() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

}  // namespace

nlohmann::ordered_json describe_machine() {
  utsname system{};
  uname(&system);
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  const double memory = page * static_cast<double>(sysconf(_SC_PHYS_PAGES));
  return {{"processor", processor(system.machine)},
          {"architecture", system.machine},
          {"cores", cores()},
          {"memory_gib", std::lround(memory / (1u << 30))},
          {"kernel", system.release},
          {"compiler", __VERSION__},
          {"lockstep", LOCKSTEP_VERSION}};
}

}  // namespace lockstep::bench
