// The command line of lockstep-bench: nccl-tests' flags, and our own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/operation.hpp"
#include "lockstep/types.hpp"

namespace lockstep::bench {

/// Timed iterations of one row, at most.
inline constexpr int kMaxIterations = 20'000;

struct Options {
  std::vector<const Operation*> operations;
  std::uint64_t min_bytes = 8;
  std::uint64_t max_bytes = 64u << 20;
  double factor = 2;
  int iterations = 0;  ///< 0: as many as fit a third of a second.
  int warmup = 5;
  bool check = true;
  std::vector<DataType> types{DataType::f32};
  std::vector<ReduceOp> redops{ReduceOp::sum};
  int root = 0;

  int ranks = 0;    ///< Start that many processes; 0: the launcher has done it.
  int threads = 0;  ///< Start that many ranks as threads of this process.
  std::string transport = "auto";
  std::string algorithm;  ///< Empty: chosen by the library.
  bool registered = false;
  bool graph = false;  ///< On devices: calls are captured once and replayed.
  std::string json;    ///< A file, "-" for standard output, empty for none.

  std::string device;                  ///< "cuda", "host": collectives on devices; empty: on host memory.
  std::vector<std::string> libraries;  ///< With NCCL's interface, to be measured beside.
  bool apart = false;                  ///< Their ranks claim to be on hosts of their own.

  bool list = false;
  bool programs = false;
  bool explain = false;
  bool calibrate = false;
  bool topology = false;
  bool startup = false;
};

/// Reads the command line. Prints help or an error and gives the exit status when there is nothing to run.
std::optional<int> parse_options(int argc, char** argv, Options& options);

/// The sizes of the sweep, smallest first.
std::vector<std::uint64_t> sweep(const Options& options);

}  // namespace lockstep::bench
