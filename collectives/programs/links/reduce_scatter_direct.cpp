// reduce_scatter and reduce_scatter_v "direct": every rank sends block p to rank p, which reduces all
// versions in rank order in one pass.
//
// Steps: 1.
// Messages: world - 1.
// Scratch: world - 1 blocks.
// Bits: rank order, one rounding.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/pairwise.hpp"

namespace lockstep::internal {

Program reduce_scatter_direct(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Blocks blocks = Blocks::of(shape);
  const Slice result = output({0, blocks[shape.rank].count});
  direct_reduce_scatter(shape, builder, sends, receives, blocks, result);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
