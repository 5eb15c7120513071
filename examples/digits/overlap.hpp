// How much of the communication is hidden behind backward.
#pragma once

#include "examples/digits/trainer.hpp"

namespace digits {

/// Medians, in seconds, over rounds; in each round the slowest rank counts.
struct Overlap {
  double step;           ///< A whole step.
  double step_alone;     ///< The same without synchronisation.
  double exposed;        ///< What synchronisation adds to a step: the difference of the two within a round.
  double communication;  ///< The all_reduces of a step's buckets, with nothing beside them.

  /// 1 when synchronisation costs no time, 0 when it costs as much as it would after backward, below 0 when
  /// it costs even more.
  double hidden() const { return communication > 0 ? 1.0 - exposed / communication : 1.0; }
};

/// Collective. The three kinds take turns, so that a change in the machine's load meets all of them. Leaves
/// the parameters as they are.
Overlap measure_overlap(lockstep::Communicator& communicator, Trainer& trainer);

}  // namespace digits
