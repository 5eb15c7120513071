// Sampler: compares algorithms on calls that all ranks make together, for --explain and --calibrate.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/board.hpp"
#include "bench/buffer.hpp"
#include "bench/operation.hpp"

namespace lockstep::bench {

/// One way to run a call.
struct Candidate {
  const Operation* operation;
  std::string algorithm;  ///< As CallOptions::algorithm; empty leaves the choice to the library.
  bool registered = false;
  std::uint64_t bytes = 0;  ///< Of the larger side.
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
};

/// How long to measure.
struct Effort {
  double seconds = 4e-3;  ///< Of one candidate in one round.
  int rounds = 4;
};

class Sampler {
 public:
  /// `most_bytes`: no candidate will have more.
  Sampler(Communicator& communicator, Board& board, std::uint64_t most_bytes);

  /// Seconds of each candidate, equal on all ranks: the slowest rank's time, median within a round, lower
  /// quartile of the rounds: neither what disturbs the machine at times nor a lucky moment decides. The
  /// candidates take turns, so that what lasts meets them alike. Throws what the calls and the board throw.
  std::vector<double> measure(std::span<const Candidate> candidates, const Effort& effort);

 private:
  struct Pair {
    Pair(std::size_t bytes, bool registered) : first(bytes, registered), second(bytes, registered) {}
    Buffer first, second;
  };
  Arguments arguments(const Candidate& candidate);
  double once(const Candidate& candidate, const Arguments& call);
  double median_of(const Candidate& candidate, const Arguments& call, int iterations);

  Communicator& communicator_;
  Board& board_;
  const std::uint64_t most_bytes_;
  std::map<bool, std::unique_ptr<Pair>> buffers_;  ///< By registered; made when needed.
};

}  // namespace lockstep::bench
