// broadcast "binomial": the buffer travels down a binomial tree, pipelined by segment (see tree.hpp).
//
// Steps: ceil(log2(world)).
// Bytes sent: the message, once to every child.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/tree.hpp"

namespace lockstep::internal {

Program broadcast_binomial(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  binomial_broadcast(shape, BinomialTree(shape), sends, receives, input({0, shape.count}), {});
  return std::move(builder).build();
}

}  // namespace lockstep::internal
