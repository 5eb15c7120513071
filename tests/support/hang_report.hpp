// What a test says of children that do not end: where each of their threads is.
#pragma once

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::internal::testing {

/// Prints the stacks of all threads of `process`, where eu-stack (package elfutils) is installed.
inline void print_stacks(pid_t process) {
  std::fprintf(stderr, "process %d does not end; its threads are here:\n", static_cast<int>(process));
  const std::string id = std::to_string(process);
  const pid_t tool = ::fork();
  if (tool == 0) {
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execlp("eu-stack", "eu-stack", "-n", "0", "-p", id.c_str(), nullptr);
    std::perror("eu-stack");
    ::_exit(1);
  }
  ::waitpid(tool, nullptr, 0);
}

/// Whether `child` has ended badly; it is left to be waited for.
inline bool has_failed(pid_t child) {
  siginfo_t end{};
  const bool ended = ::waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                     end.si_pid == child;
  return ended && (end.si_code != CLD_EXITED || end.si_status != 0);
}

/// Waits until all children have ended, which it leaves to be waited for, or for `patience`; or, once one has
/// failed, for `after_failure`. Those that have not ended then.
inline std::vector<pid_t> await_ends(const std::vector<pid_t>& children, std::chrono::milliseconds patience,
                                     std::chrono::milliseconds after_failure) {
  using Clock = std::chrono::steady_clock;
  std::vector<pollfd> ends;
  for (const pid_t child : children)
    ends.push_back({static_cast<int>(::syscall(SYS_pidfd_open, child, 0)), POLLIN, 0});
  auto until = Clock::now() + patience;
  const auto has_ended = [](const pollfd& end) { return end.fd < 0; };
  while (!std::all_of(ends.begin(), ends.end(), has_ended)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (::poll(ends.data(), ends.size(), static_cast<int>(std::max<long>(left.count(), 0))) == 0) break;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (has_ended(ends[i]) || ends[i].revents == 0) continue;
      ::close(std::exchange(ends[i].fd, -1));
      if (has_failed(children[i])) until = std::min(until, Clock::now() + after_failure);
    }
  }
  std::vector<pid_t> left;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (has_ended(ends[i])) continue;
    left.push_back(children[i]);
    ::close(ends[i].fd);
  }
  return left;
}

/// Where some have not ended after `patience`, prints the stacks of those.
inline void report_hangs(const std::vector<pid_t>& children, std::chrono::milliseconds patience) {
  for (const pid_t child : await_ends(children, patience, patience)) print_stacks(child);
}

}  // namespace lockstep::internal::testing
