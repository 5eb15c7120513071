// The command line of lockstep-device-floors.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep::bench {

struct FloorsOptions {
  std::size_t most_bytes = 0;
  std::vector<int> ranks;  ///< Of each ring of processes.
};

/// Fills `options`; the exit status where there is nothing to run, after what was wrong, or --help.
std::optional<int> parse_options(int argc, char** argv, FloorsOptions& options);

}  // namespace lockstep::bench
