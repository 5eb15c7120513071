// Steps whose forward waits for gradients layer by layer, beside steps that wait for all of them first.
#pragma once

#include <cstddef>

#include "bench/board.hpp"
#include "bench/ddp/options.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::bench {

/// Medians over the rounds, in milliseconds of one step; in each round the slowest rank counts.
struct OverlapResult {
  std::size_t parameters = 0;
  double step_ms = 0;        ///< wait() waits for all gradients.
  double overlapped_ms = 0;  ///< ReducerOptions::overlap_forward.
  double saved_ms = 0;       ///< The difference within a round.
  double compute_ms = 0;     ///< The same without synchronisation.
  double forward_ms = 0;     ///< Of that, optimizer and forward: what may be hidden beyond backward.
};

/// Collective; equal on all ranks.
OverlapResult measure_overlap(Communicator& communicator, Board& board, const DdpOptions& options);

}  // namespace lockstep::bench
