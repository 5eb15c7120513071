// all_gather "bruck": in round k every rank has the blocks of 2^k ranks, from its own on rightwards, and
// gets as many again from the rank 2^k places to its right (fewer in the last round). Works for any world
// size.
//
// The blocks gather in scratch in that order, own block first, so that each message is one piece; at the
// end they are put in their places.
//
// Steps: ceil(log2(world)).
// Bytes sent: (world - 1) / world of the output, and one local copy of it. For short blocks.
// J. Bruck et al.: Efficient algorithms for all-to-all communications in multiport message-passing systems,
// 1997.
#include <algorithm>

#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

Program all_gather_bruck(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Blocks blocks = Blocks::of(shape);
  builder.reserve(blocks.total());
  DoublingTickets arrived(receives.copy(input({0, shape.count}), scratch(blocks[0])));
  for (int have = 1; have < shape.world; have *= 2) {
    const int more = std::min(have, shape.world - have);
    sends.send(wrap(shape.rank - have, shape.world), scratch(blocks.joined(0, more)), {arrived.when(more)});
    arrived.doubled(receives.recv(wrap(shape.rank + have, shape.world), scratch(blocks.joined(have, more))));
  }
  // the order of scratch: rank .. world - 1, then 0 .. rank - 1
  const int until_last = shape.world - shape.rank;
  receives.copy(scratch(blocks.joined(0, until_last)), output(blocks.joined(shape.rank, until_last)));
  receives.copy(scratch(blocks.joined(until_last, shape.rank)), output(blocks.joined(0, shape.rank)));
  return std::move(builder).build();
}

}  // namespace lockstep::internal
