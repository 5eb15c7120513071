// ChildProcess: a program that a test starts, talks to line by line, and is rid of afterwards.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "lib/bootstrap/launch.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

class ChildProcess {
 public:
  /// Runs `arguments` (the first is the program's path) with `environment` alone, standard output and error
  /// on pipes.
  ChildProcess(std::vector<std::string> arguments, const Environment& environment);
  /// Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int signal) const;
  void write_line(const std::string& line);
  void close_input() { input_.reset(); }
  /// The next line of standard output, or what there was when it ended. Fails the test after a long while.
  std::string read_line();
  /// All that is still to come of a stream, to its end.
  std::string read_output();
  std::string read_error();
  /// Exit status as waitpid gives it. Waits.
  int wait();

 private:
  pid_t pid_ = -1;
  Fd input_, output_, error_;
  std::string pending_;
};

/// "rank 3 (node-2, pid 4711)": what messages call such a process of this host.
std::string rank_text(int rank, const ChildProcess& process);

/// The exit code, or 128 + the signal.
int exit_code(int status);

}  // namespace lockstep::internal
