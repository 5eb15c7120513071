#include "transports/shm/read_process.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "lib/memory/segment.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal {
namespace {

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

Status lost(const ProcessIdentity& process, const char* how, int rank) {
  return Status(ErrorCode::peer_lost, "process " + std::to_string(process.pid) + how, rank);
}

Status refused(const ProcessIdentity& process, int error, int rank) {
  const Status cause = system_error("reading memory of process " + std::to_string(process.pid), error);
  return Status(cause.code(),
                cause.message() + "; LOCKSTEP_ALGORITHMS (as all_gather:*=staged/direct) keeps calls from it",
                rank);
}

}  // namespace

ProcessIdentity own_identity() noexcept {
  return {::getpid(), ::gettid(), process_token(), process_token_address()};
}

std::int64_t lasting_thread() {
  std::int64_t thread = 0;
  Reactor::serving().run_there([&] { thread = ::gettid(); });
  return thread;
}

// The token comes with the bytes: the kernel finds a process's memory once in a call, so what lies beside the
// right token is the right process's. It may copy less than was asked for, at a page that it has to fetch
// first.
Status read_process(const ProcessIdentity& process, std::uint64_t address, void* to, std::size_t bytes,
                    int rank) {
  constexpr ssize_t kTokenBytes = sizeof process.token;
  for (std::size_t done = 0;;) {
    std::uint64_t token = 0;
    const iovec here[] = {{&token, kTokenBytes}, {static_cast<std::byte*>(to) + done, bytes - done}};
    const iovec there[] = {{pointer(process.token_address), kTokenBytes},
                           {pointer(address + done), bytes - done}};
    const ssize_t copied = ::process_vm_readv(static_cast<pid_t>(process.thread), here, 2, there, 2, 0);
    if (copied < 0 && errno == EINTR) continue;
    if (copied < 0 && errno == ESRCH) return lost(process, " is gone", rank);
    if (copied < 0 && errno != EFAULT) return refused(process, errno, rank);
    if (copied < kTokenBytes || token != process.token)
      return lost(process, " is gone: another has its number, or it became another program (exec)", rank);
    done += static_cast<std::size_t>(copied - kTokenBytes);
    if (done == bytes) return Status();
    if (copied == kTokenBytes) return refused(process, EFAULT, rank);
  }
}

}  // namespace lockstep::internal
