// The command line of lockstep-ddp-bench.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::bench {

struct DdpOptions {
  int ranks = 2;
  int hosts = 1;
  std::string link = "1gbit";  ///< In the words of tc.
  std::string hook = "none";
  bool undo = true;                 ///< ReducerOptions::undo.
  std::optional<bool> check_first;  ///< ReducerOptions::check_first.
  bool overlap_forward = false;     ///< Measure what ReducerOptions::overlap_forward saves.
  int zero = -1;                    ///< Stage of sharding, with AdamW; -1: the reducer alone.
  std::uint64_t parameters = 25'000'000;
  std::uint64_t bucket_bytes = 0;  ///< 0: the reducer's default.
  std::size_t batch = 32;
  std::size_t rounds = 11;
  std::string transport = "auto";
  std::string json;                  ///< A file, "-" for standard output, empty for none.
  std::vector<std::string> command;  ///< To run on the ranks instead of the benchmark.
};

/// Reads the command line. Prints help or an error and gives the exit status when there is nothing to run.
std::optional<int> parse_ddp_options(int argc, char** argv, DdpOptions& options);

}  // namespace lockstep::bench
