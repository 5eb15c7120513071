#include "tools/run/own_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace lockstep::run {
namespace {

using internal::Fd;
using internal::Result;
using internal::Status;

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void open_standard_streams() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd >= 0) close(fd);
}

/// So many ranks need as many descriptors here: a rank's process, its two streams, its file, and its two
/// connections to the store.
Status check_descriptors(const RunOptions& options, rlim_t limit) {
  constexpr std::uint64_t kOfARank = 5, kOwn = 32;
  const std::uint64_t of_a_rank = kOfARank + (options.output_directory.empty() ? 0 : 1);
  const std::uint64_t needed = static_cast<std::uint64_t>(options.ranks) * of_a_rank + kOwn;
  if (needed <= limit) return Status();
  return Status(ErrorCode::configuration,
                std::to_string(options.ranks) + " ranks need " + std::to_string(needed) +
                    " descriptors here, and this process may open " + std::to_string(limit) +
                    ": raise the limit (ulimit -n), or start fewer ranks");
}

Result<Fd> take_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP}) {
    if (!is_ignored(signal)) sigaddset(&set, signal);  // Blocked, it would be queued though it is ignored.
  }
  if (getpid() == 1) sigaddset(&set, SIGCHLD);  // Orphans come to this process, and have to be reaped.
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd) return internal::system_error("signalfd", errno);
  return fd;
}

Status no_process(int error_number) {
  const char* const next =
      error_number == EAGAIN ? "; raise `ulimit -u`, or the container's limit of processes" : "";
  return internal::system_error(std::string("no process could be started") + next, error_number);
}

}  // namespace lockstep::run
