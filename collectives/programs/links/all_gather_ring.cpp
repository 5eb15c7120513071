// all_gather and all_gather_v "ring": see ring.hpp.
//
// Steps: world - 1.
// Bytes sent: (world - 1) / world of the output.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/ring.hpp"

namespace lockstep::internal {

Program all_gather_ring(const Shape& call) {
  ProgramBuilder builder;
  const Shape shape = call.world > 2 ? call : seldom_cut(call);
  RingLanes lanes(builder);
  const RingOrder order(shape);
  const Blocks blocks = order.by_place(Blocks::of(shape));
  const Range own = blocks[order.place()];
  ring_all_gather(shape, lanes, blocks, input({0, own.count}), {});
  builder.lane().copy(input({0, own.count}), output(own));
  return std::move(builder).build();
}

}  // namespace lockstep::internal
