// A training step with AdamW whose state is whole (stage 0) or sharded (stages 1 and 2): its time, the share
// of the all_gather of parameters that the next forward hides, and a rank's memory.
#pragma once

#include <cstddef>

#include "bench/board.hpp"
#include "bench/ddp/options.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::bench {

/// Milliseconds are medians over the rounds; in each round the slowest rank counts.
struct ZeroResult {
  std::size_t parameters = 0;
  double step_ms = 0;         ///< Optimizer, forward, backward, wait().
  double compute_ms = 0;      ///< The same alone.
  double at_once_ms = 0;      ///< With all values gathered before the forward begins. Stage 0: step_ms.
  double gather_ms = 0;       ///< The gathering alone. Stage 0: 0.
  ShardedMemory memory;       ///< Of rank 0, as the library counts it.
  double resident_bytes = 0;  ///< What its process gained, shared pages divided among those who map them.

  /// Of gather_ms, what a forward that waits parameter by parameter hides.
  double gather_hidden() const { return gather_ms > 0 ? (at_once_ms - step_ms) / gather_ms : 0; }
};

/// Collective; times are equal on all ranks.
ZeroResult measure_zero(Communicator& communicator, Board& board, const DdpOptions& options);

}  // namespace lockstep::bench
