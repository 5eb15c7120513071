#include "transports/shm/read_process.hpp"

#include <sys/uio.h>

#include <cerrno>
#include <string>

namespace lockstep::internal {

// The kernel may copy less than was asked for, at a page that it has to fetch first.
Status read_process(std::int64_t pid, std::uint64_t address, void* to, std::size_t bytes, int rank) {
  for (std::size_t done = 0; done < bytes;) {
    const iovec here{static_cast<std::byte*>(to) + done, bytes - done};
    const iovec there{reinterpret_cast<void*>(address + done), bytes - done};
    const ssize_t copied = ::process_vm_readv(static_cast<pid_t>(pid), &here, 1, &there, 1, 0);
    if (copied > 0) {
      done += static_cast<std::size_t>(copied);
    } else if (copied < 0 && errno == ESRCH) {
      return Status(ErrorCode::peer_lost, "process " + std::to_string(pid) + " is gone", rank);
    } else if (copied == 0 || errno != EINTR) {
      const Status cause = system_error("reading memory of process " + std::to_string(pid), errno);
      return Status(
          cause.code(),
          cause.message() + "; LOCKSTEP_ALGORITHMS (as all_gather:*=staged/direct) keeps calls from it",
          rank);
    }
  }
  return Status();
}

}  // namespace lockstep::internal
