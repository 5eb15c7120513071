// reduce_scatter and reduce_scatter_v "ring": see ring.hpp.
//
// Steps: world - 1.
// Bytes sent: (world - 1) / world of the input.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/ring.hpp"

namespace lockstep::internal {

Program reduce_scatter_ring(const Shape& call) {
  ProgramBuilder builder;
  const Shape shape = call.world > 2 || !call.streams ? call : seldom_cut(call);
  RingLanes lanes(builder);
  const RingOrder order(shape);
  const Blocks blocks = order.by_place(Blocks::of(shape));
  RingReduceScatter ring(shape, builder, lanes, blocks);
  const Range own = blocks[order.place()];
  const Slice result = output({0, own.count});
  for (int wave = 0; wave < ring.waves(); ++wave) {
    ring.run(wave, [&](int, Range segment) -> RingReduceScatter::Place {
      return {within(result, {segment.begin - own.begin, segment.count}), {}};
    });
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
