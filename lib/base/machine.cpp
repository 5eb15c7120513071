#include "lib/base/machine.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

namespace lockstep::internal {

std::string processor_name() {
  // "model name" on x86; on ARM the file has only numbers, which say less than the architecture's name.
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname system{};
  uname(&system);
  return system.machine;
}

std::string kernel_release() {
  utsname system{};
  uname(&system);
  return system.release;
}

int online_cores() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

}  // namespace lockstep::internal
