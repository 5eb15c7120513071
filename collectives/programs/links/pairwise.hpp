// Direct exchange: in round k every rank sends to the rank k places to its right and receives from the rank
// k places to its left, so that in each round everybody sends once and receives once, and nobody is a hot
// spot. Works for any world size.
#pragma once

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

/// Calls visit(to, from) for rounds 1 .. world - 1.
template <typename Visit>
void for_each_round(const Shape& shape, Visit visit) {
  for (int round = 1; round < shape.world; ++round) {
    visit(wrap(shape.rank + round, shape.world), wrap(shape.rank - round, shape.world));
  }
}

/// Sends block p of input to every rank p, receives everybody's version of the own block into scratch, and
/// reduces them in rank order in one pass, finished, into `result` (as long as the block). Returns the ticket
/// of the result. `sent`, when given: by rank, when its block has left. Bits: one rounding for f16 and bf16.
After direct_reduce_scatter(const Shape& shape, ProgramBuilder& builder, LaneBuilder& sends,
                            LaneBuilder& receives, const Blocks& blocks, Slice result,
                            std::vector<After>* sent = nullptr);

}  // namespace lockstep::internal
