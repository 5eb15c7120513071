// reduce_scatter and reduce_scatter_v "direct": every rank sends block p to rank p, which reduces all
// versions in rank order in one pass, segment by segment.
//
// Steps: 1.
// Messages: world - 1.
// Scratch: world - 1 segments.
// Bits: rank order, one rounding.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/pairwise.hpp"

namespace lockstep::internal {

Program reduce_scatter_direct(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const Blocks blocks = Blocks::of(shape);
  DirectReduceScatter exchange(shape, builder, sends, receives, blocks);
  const std::uint64_t begin = blocks[shape.rank].begin;
  for (int s = 0; s < exchange.segments(); ++s) {
    const Range own = exchange.segment(shape.rank, s);
    exchange.run(s, output({own.begin - begin, own.count}));
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
