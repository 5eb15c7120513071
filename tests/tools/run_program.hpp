// lockstep-run as its tests start it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/bootstrap/child_process.hpp"

namespace lockstep::internal {

inline const Environment kEnvironment{{"PATH", "/usr/local/bin:/usr/bin:/bin"}};

ChildProcess start(std::vector<std::string> arguments, const Environment& environment = kEnvironment);

struct Outcome {
  std::string output, error;
  int code = -1;
};

/// All that comes of a process, whose standard input is closed.
Outcome outcome_of(ChildProcess process);
Outcome run(std::vector<std::string> arguments, const Environment& environment = kEnvironment);
/// `script` on `ranks` ranks.
Outcome run_shell(int ranks, const std::string& script, std::vector<std::string> options = {});
/// `script`, in which $RUN is lockstep-run: for what a shell does to it first (limits, ignored signals).
Outcome run_in_shell(const std::string& script);

/// The lines of `text` in the order of the alphabet.
std::string sorted(const std::string& text);
std::string read_file(const std::string& path);
/// The state letter of a process, as ps shows it.
void wait_for_state(pid_t pid, char state);

/// Sees a process end, whoever reaps it.
class EndWatch {
 public:
  explicit EndWatch(pid_t pid);
  bool ended(int patience_ms = 60'000) const;

 private:
  Fd pidfd_;
};

}  // namespace lockstep::internal
