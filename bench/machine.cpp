// The machine that a report's figures are from.
#include "lib/base/machine.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cmath>

#include "bench/report.hpp"
#include "lib/base/core_set.hpp"

namespace lockstep::bench {

nlohmann::ordered_json describe_machine() {
  utsname system{};
  uname(&system);
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  const double memory = page * static_cast<double>(sysconf(_SC_PHYS_PAGES));
  return {{"processor", internal::processor_name()},
          {"architecture", system.machine},
          {"cores", internal::allowed_cores().count()},
          {"memory_gib", std::lround(memory / (1u << 30))},
          {"kernel", system.release},
          {"compiler", __VERSION__},
          {"lockstep", LOCKSTEP_VERSION}};
}

}  // namespace lockstep::bench
