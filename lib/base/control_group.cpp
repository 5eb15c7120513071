#include "lib/base/control_group.hpp"

#include <sys/sysinfo.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>

namespace lockstep::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kNone = std::numeric_limits<std::uint64_t>::max();

/// kNone where it says "max", or is not there.
std::uint64_t number_in(const fs::path& file) {
  std::ifstream stream(file);
  std::uint64_t number = 0;
  return stream >> number ? number : kNone;
}

std::uint64_t swap_of_machine() {
  struct sysinfo machine {};
  return ::sysinfo(&machine) == 0 ? std::uint64_t{machine.totalswap} * machine.mem_unit : 0;
}

// Version 2 has a limit for swap, version 1 one for memory and swap together.

std::uint64_t allowed_by_2(const fs::path& group) {
  const std::uint64_t memory = number_in(group / "memory.max");
  return memory == kNone ? kNone : memory + std::min(number_in(group / "memory.swap.max"), swap_of_machine());
}

std::uint64_t allowed_by_1(const fs::path& group) {
  const std::uint64_t memory = number_in(group / "memory.limit_in_bytes");
  return memory == kNone
             ? kNone
             : std::min(number_in(group / "memory.memsw.limit_in_bytes"), memory + swap_of_machine());
}

/// Looks at `group`, and at all above it. In a container the folder where they begin may be the process's
/// own, and its name lead nowhere.
template <class Allowed>
void look(const fs::path& mount, const std::string& group, Allowed allowed, MemoryLimit& least) {
  for (fs::path part = fs::path(group).relative_path();; part = part.parent_path()) {
    const fs::path folder = mount / part;
    if (const std::uint64_t bytes = allowed(folder); bytes < least.bytes) least = {bytes, folder};
    if (part.empty()) return;
  }
}

}  // namespace

std::optional<MemoryLimit> memory_limit(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  MemoryLimit least{kNone, {}};
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/job" of version 2, "4:memory:/job" of 1.
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) look(mounts, group, allowed_by_2, least);
    if (controllers == "memory") look(mounts + "/memory", group, allowed_by_1, least);
  }
  if (least.bytes == kNone) return std::nullopt;
  return least;
}

}  // namespace lockstep::internal
