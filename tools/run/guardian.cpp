#include "tools/run/guardian.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <set>
#include <utility>

#include "tools/run/own_process.hpp"

namespace lockstep::run {
namespace {

/// Its terminal, signals and standard streams are not lockstep-run's: it must live longer, and keep no pipe
/// of the user's open.
void detach() {
  setsid();
  prctl(PR_SET_NAME, "lockstep-guard");
  const int null = open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null, stream);
  if (null > STDERR_FILENO) close(null);
}

[[noreturn]] void guard(int pipe) noexcept {
  detach();
  std::set<pid_t> groups;
  for (pid_t message = 0;;) {
    const ssize_t count = read(pipe, &message, sizeof message);  // Writes of this size are never split.
    if (count < 0 && errno == EINTR) continue;
    if (count != sizeof message) break;
    if (message > 0) groups.insert(message);
    if (message < 0) groups.erase(-message);
  }
  for (const pid_t group : groups) kill(-group, SIGKILL);
  _exit(0);
}

}  // namespace

internal::Result<Guardian> Guardian::start() {
  std::array<int, 2> ends{-1, -1};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return internal::system_error("pipe", errno);
  const pid_t pid = fork();
  if (pid < 0) return no_process(errno);
  if (pid == 0) {
    close(ends[1]);
    guard(ends[0]);
  }
  close(ends[0]);
  return Guardian(pid, internal::Fd(ends[1]));
}

Guardian::Guardian(Guardian&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), pipe_(std::move(other.pipe_)) {}

Guardian::~Guardian() {
  if (pid_ < 0) return;
  pipe_.reset();
  waitpid(pid_, nullptr, 0);
}

void Guardian::add(pid_t group) { tell(group); }
void Guardian::remove(pid_t group) { tell(-group); }

void Guardian::tell(pid_t message) {
  while (write(pipe_.get(), &message, sizeof message) < 0 && errno == EINTR) {
  }
}

}  // namespace lockstep::run
