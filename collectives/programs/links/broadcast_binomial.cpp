// broadcast "binomial": the buffer travels down a binomial tree, pipelined by segment (see tree.hpp).
//
// Steps: ceil(log2(world)).
// Bytes sent: the message, once to every child.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/tree.hpp"

namespace lockstep::internal {

Program broadcast_binomial(const Shape& call) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const BinomialTree tree(call);
  const Shape shape = tree.relays() ? call : seldom_cut(call);
  binomial_broadcast(shape, tree, sends, receives, input({0, shape.count}), {});
  return std::move(builder).build();
}

}  // namespace lockstep::internal
