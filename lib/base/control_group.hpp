// What the control groups (cgroups) of this process leave it: a container's, a job's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::internal {

/// Of the memory of a control group, swap included.
struct MemoryRoom {
  std::uint64_t bytes = 0;  ///< Still to be had.
  std::uint64_t limit = 0;  ///< Of all that its processes have.
  std::string group;        ///< Its folder.
};

/// The least that this process's control group or one above it still has, by version 2 or 1; nothing where
/// none has a limit. What the kernel takes back before it ends a process counts as still to be had.
/// `root`: where /proc and /sys are.
std::optional<MemoryRoom> memory_room(const std::string& root = "");

}  // namespace lockstep::internal
