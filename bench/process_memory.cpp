#include "bench/process_memory.hpp"

#include <fstream>
#include <stdexcept>
#include <string>

namespace lockstep::bench {

std::uint64_t proportional_bytes() {
  constexpr std::uint64_t kKibibyte = 1024;
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    std::uint64_t kibibytes = 0;
    if (word == "Pss:" && file >> kibibytes) return kibibytes * kKibibyte;
  }
  throw std::runtime_error("/proc/self/smaps_rollup does not say how much memory this process uses");
}

}  // namespace lockstep::bench
