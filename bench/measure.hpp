// Measuring one rank's part of a sweep.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "bench/board.hpp"
#include "bench/options.hpp"
#include "bench/traffic.hpp"

namespace lockstep::bench {

/// Of one operation at one size. An iteration's time is that of its slowest rank.
struct Timing {
  double median_us = 0;
  double p99_us = 0;
  std::uint64_t wrong = 0;  ///< Elements on all ranks.
  Traffic sent{};           ///< By all ranks in one operation, over links.
};

struct Row {
  const Operation* operation;
  DataType type;
  ReduceOp op;
  int root;
  std::uint64_t count;                           ///< As given to the call.
  std::uint64_t bytes;                           ///< Of the larger side.
  std::optional<Timing> out_of_place, in_place;  ///< Unset: the operation has no such form.
};

/// Runs the whole sweep on this rank and calls `report` after each row, with equal rows on all ranks. Throws
/// lockstep::Error, or what Board throws.
void measure(Communicator& communicator, Board& board, const Options& options,
             const std::function<void(const Row&)>& report);

}  // namespace lockstep::bench
