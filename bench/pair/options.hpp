// The command line of pair-bench.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::bench {

struct PairOptions {
  std::string transport = "ucx";
  std::uint64_t bytes = 1 << 20;
  int iterations = 1000, warmup = 100, window = 32;
  bool stream = false, registered = false, unwritten = false, pinned = false;
};

/// Fills `options`; the exit status where there is nothing to run, after what was wrong, or --help.
std::optional<int> parse_options(int argc, char** argv, PairOptions& options);

}  // namespace lockstep::bench
