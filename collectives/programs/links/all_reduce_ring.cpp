// all_reduce "ring": ring reduce-scatter, then ring all-gather (see ring.hpp).
//
// Steps: 2 (world - 1).
// Bytes sent by each rank: 2 (world - 1) / world of the message, the least possible.
// Bits: block b is summed in the order b + 1, b + 2, ..., b by the ranks on its way, once, and then copied:
// equal on all ranks.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/ring.hpp"

namespace lockstep::internal {

Program all_reduce_ring(const Shape& shape) {
  ProgramBuilder builder;
  RingLanes lanes(builder);
  const Blocks blocks = Blocks::parts(shape.count, shape.world);
  SumsInOutput sums;
  const Slice own = output(blocks[shape.rank]);
  const RingReduced reduced = ring_reduce_scatter(shape, lanes, blocks, sums, own);
  ring_all_gather(shape, lanes, blocks, own, reduced.result, reduced.sent);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
