// A training step with and without synchronisation, taking turns.
#pragma once

#include <cstdint>

#include "bench/board.hpp"
#include "bench/ddp/options.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::bench {

/// Medians over the rounds, in milliseconds; in each round the slowest rank counts.
struct DdpResult {
  std::size_t parameters = 0;
  int buckets = 0;
  double compute_ms = 0;  ///< Forward, backward, optimizer.
  double exposed_ms = 0;  ///< What averaging the gradients adds to that, within a round.
  double wire_ms = 0;     ///< The averaging alone, gradients being ready.
  /// Of compute_ms: from the moment when the first bucket is full to the end of backward.
  double backward_ms = 0;
  /// With two hosts what the first one sent in a step, by its interface's count; else gradient bytes that the
  /// rank handed to collectives.
  std::uint64_t bytes_on_wire = 0;

  /// A whole step. The sum, since the machine may have been busier in some rounds than in others.
  double step_ms() const { return compute_ms + exposed_ms; }
};

/// Collective; equal on all ranks but for bytes_on_wire, which is rank 0's.
DdpResult measure_ddp(Communicator& communicator, Board& board, const DdpOptions& options);

}  // namespace lockstep::bench
