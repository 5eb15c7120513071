// Reading the memory of another process (cross-memory attach), which Linux allows between processes of one
// user unless ptrace is restricted (Yama, containers without the system call).
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// A process by what its memory says: its pid alone may be another's by now, or another program's.
struct ProcessIdentity {
  std::int64_t pid = 0;
  std::int64_t thread = 0;  ///< One of its threads that lives: the first one, its pid, may have ended.
  std::uint64_t token = 0;  ///< Its process_token(),
  std::uint64_t token_address = 0;  ///< and process_token_address().
};

/// Of this process, by the thread that asks.
ProcessIdentity own_identity() noexcept;
/// A thread of this process that lives as long as it does.
std::int64_t lasting_thread();

/// Copies `bytes` (0: as a trial) at `address` of that process to `to`. Errors name `rank`: peer_lost when
/// the process is gone, system otherwise.
Status read_process(const ProcessIdentity& process, std::uint64_t address, void* to, std::size_t bytes,
                    int rank);

}  // namespace lockstep::internal
