// Reading the memory of another process (cross-memory attach), which Linux allows between processes of one
// user unless ptrace is restricted (Yama, containers without the system call).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// Copies `bytes` at `address` of process `pid` to `to`. Errors name `rank`: peer_lost when its process is
/// gone, system otherwise.
Status read_process(std::int64_t pid, std::uint64_t address, void* to, std::size_t bytes, int rank);

}  // namespace lockstep::internal
