#include "lib/base/control_group.hpp"

#include <sys/sysinfo.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <string_view>

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

/// The sum of these rows of a memory.stat; nothing where that has none of them.
std::optional<std::uint64_t> sum_of_rows(const fs::path& file, std::initializer_list<std::string_view> rows) {
  std::ifstream stream(file);
  std::optional<std::uint64_t> sum;
  std::string name;
  for (std::uint64_t number = 0; stream >> name >> number;) {
    if (std::find(rows.begin(), rows.end(), name) != rows.end()) sum = sum.value_or(0) + number;
  }
  return sum;
}

/// What a group may have, kNone: without limit, and has.
struct Account {
  std::uint64_t limit = kNone, used = 0;
};

/// `has`, less what the kernel takes back: pages of files, which shared memory is not among. 0 where nobody
/// says how much that is.
std::uint64_t used_of(std::uint64_t has, std::optional<std::uint64_t> taken_back) {
  return has == kNone || !taken_back ? 0 : has - std::min(has, *taken_back);
}

// Version 2 counts memory and swap apart, version 1 memory, and memory and swap together.

Account account_of_2(const fs::path& group) {
  const std::uint64_t memory = number_in(group / "memory.max");
  if (memory == kNone) return {};
  const std::uint64_t swap = std::min(number_in(group / "memory.swap.max"), swap_of_machine());
  const auto taken_back =
      sum_of_rows(group / "memory.stat", {"inactive_file", "active_file", "slab_reclaimable"});
  const std::uint64_t used = used_of(number_in(group / "memory.current"), taken_back);
  const std::uint64_t swapped = number_in(group / "memory.swap.current");
  // What was read back is counted in both.
  const std::uint64_t in_both = sum_of_rows(group / "memory.stat", {"swapcached"}).value_or(0);
  return {memory + swap, used + (swapped == kNone ? 0 : swapped - std::min(swapped, in_both))};
}

Account account_of_1(const fs::path& group) {
  const std::uint64_t memory = number_in(group / "memory.limit_in_bytes");
  if (memory == kNone) return {};
  auto taken_back = sum_of_rows(group / "memory.stat", {"total_inactive_file", "total_active_file"});
  // The kernel's own, of which nobody says how much it takes back: most is (what it knows of files).
  const std::uint64_t of_kernel = number_in(group / "memory.kmem.usage_in_bytes");
  if (taken_back && of_kernel != kNone) *taken_back += of_kernel;
  const std::uint64_t both = number_in(group / "memory.memsw.usage_in_bytes");
  const std::uint64_t has = both == kNone ? number_in(group / "memory.usage_in_bytes") : both;
  const std::uint64_t limit =
      std::min(number_in(group / "memory.memsw.limit_in_bytes"), memory + swap_of_machine());
  return {limit, used_of(has, taken_back)};
}

/// Looks at `group`, and at all above it. In a container the folder where they begin may be the process's
/// own, and its name lead nowhere.
template <class AccountOf>
void look(const fs::path& mount, const std::string& group, AccountOf account_of, MemoryRoom& least) {
  for (fs::path part = fs::path(group).relative_path();; part = part.parent_path()) {
    const fs::path folder = mount / part;
    const Account account = account_of(folder);
    const std::uint64_t room = account.limit - std::min(account.limit, account.used);
    if (account.limit != kNone && room < least.bytes) least = {room, account.limit, folder};
    if (part.empty()) return;
  }
}

}  // namespace

std::optional<MemoryRoom> memory_room(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  MemoryRoom least{kNone, kNone, {}};
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/job" of version 2, "4:memory:/job" of 1.
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) look(mounts, group, account_of_2, least);
    if (controllers == "memory") look(mounts + "/memory", group, account_of_1, least);
  }
  if (least.limit == kNone) return std::nullopt;
  return least;
}

}  // namespace lockstep::internal
