// reduce_scatter and reduce_scatter_v "ring": see ring.hpp.
//
// Steps: world - 1.
// Bytes sent: (world - 1) / world of the input.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/ring.hpp"

namespace lockstep::internal {

Program reduce_scatter_ring(const Shape& shape) {
  ProgramBuilder builder;
  RingLanes lanes(builder);
  const Blocks blocks = Blocks::of(shape);
  PartialSums sums(builder, blocks, shape.segment);
  ring_reduce_scatter(shape, lanes, blocks, sums, output({0, blocks[shape.rank].count}));
  return std::move(builder).build();
}

}  // namespace lockstep::internal
