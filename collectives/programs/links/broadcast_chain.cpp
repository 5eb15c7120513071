// broadcast "chain": every rank passes the message on to its right neighbour, segment by segment, so that
// all links of the chain are busy at once.
//
// Steps: world - 2 + segments.
// Bytes sent: the message, once. The best for long messages on few ranks; useless without Shape::segment.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/links/ring.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

Program broadcast_chain(const Shape& call) {
  ProgramBuilder builder;
  const Shape shape = call.world > 2 ? call : seldom_cut(call);
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const RingOrder order(shape);
  const int right = order.right(), left = order.left();
  const Range whole{0, shape.count};
  for (int s = 0; s < segment_count(shape.count, shape.segment); ++s) {
    const Range segment = segment_of(whole, shape.segment, s);
    const bool at_root = shape.rank == shape.root;
    const After arrived = at_root ? After{} : receives.recv(left, output(segment));
    if (right != shape.root) sends.send(right, at_root ? input(segment) : output(segment), {arrived});
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
