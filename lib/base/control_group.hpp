// What the control groups (cgroups) of this process allow it: a container's, a job's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::internal {

struct MemoryLimit {
  std::uint64_t bytes = 0;  ///< Swap included.
  std::string group;        ///< The folder of the control group that has it.
};

/// The least memory that this process's control group or one above it may have, by version 2 or 1; nothing
/// where none says. `root`: where /proc and /sys are.
std::optional<MemoryLimit> memory_limit(const std::string& root = "");

}  // namespace lockstep::internal
