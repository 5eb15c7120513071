// The command line of lockstep-run.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::run {

struct RunOptions {
  int ranks = 0;
  std::vector<std::string> command;  ///< The program and its arguments.
  std::chrono::milliseconds grace{10'000};
  std::string output_directory;  ///< Empty: no files.
  std::optional<int> only_rank;
  bool quiet = false;
  bool dry_run = false;
  bool variables = false;
};

/// Fills `options`. Returns an exit code when the program should end now: after --help, or an error (told on
/// stderr).
std::optional<int> parse_options(int argc, char** argv, RunOptions& options);

}  // namespace lockstep::run
