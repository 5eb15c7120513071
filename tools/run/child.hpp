// Child: one started rank: its process, in a process group of its own, and the reading ends of its output.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/bootstrap/launch.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::run {

struct Child {
  pid_t pid = -1;
  internal::Fd pidfd;          ///< Readable when the process has ended.
  internal::Fd output, error;  ///< Non-blocking.
};

struct ChildOptions {
  std::vector<std::string> command;  ///< The first is a path: see find_program.
  internal::Environment environment;
  /// Gives the rank a pseudo terminal, if there is one: it draws progress bars.
  bool output_is_terminal = false;
  bool error_is_terminal = false;
  bool has_input = false;  ///< Inherits standard input; else it reads /dev/null.
  rlimit descriptors{};    ///< How many it may have open.
};

/// Starts a rank. It is killed when the calling thread ends (PR_SET_PDEATHSIG), and starts with no signal
/// blocked.
internal::Result<Child> start_child(const ChildOptions& options);

/// The path of `name`, looked up in PATH unless it has a slash.
internal::Result<std::string> find_program(const std::string& name);

}  // namespace lockstep::run
