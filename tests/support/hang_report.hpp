// What a test says of children that do not end: where each of their threads is.
#pragma once

#include <poll.h>
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

/// Returns when all children have ended, which it leaves to be waited for, or after `patience`, and then it
/// has printed the stacks of those that have not.
inline void report_hangs(const std::vector<pid_t>& children, std::chrono::milliseconds patience) {
  std::vector<pollfd> ends;
  for (const pid_t child : children)
    ends.push_back({static_cast<int>(::syscall(SYS_pidfd_open, child, 0)), POLLIN, 0});
  const auto until = std::chrono::steady_clock::now() + patience;
  const auto has_ended = [](const pollfd& end) { return end.fd < 0; };
  while (!std::all_of(ends.begin(), ends.end(), has_ended)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (::poll(ends.data(), ends.size(), static_cast<int>(std::max<long>(left.count(), 0))) == 0) break;
    for (pollfd& end : ends) {
      if (end.fd >= 0 && end.revents != 0) ::close(std::exchange(end.fd, -1));
    }
  }
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (has_ended(ends[i])) continue;
    print_stacks(children[i]);
    ::close(ends[i].fd);
  }
}

}  // namespace lockstep::internal::testing
