// all_reduce "reduce_broadcast": a binomial reduce to rank 0, then a binomial broadcast, both pipelined by
// segment (see tree.hpp).
//
// Steps: 2 ceil(log2(world)).
// Bytes sent: the message, once up and once to each child down. Few messages in all (2 (world - 1)), for
// networks where each message is dear.
// Bits: the sum is formed once, at rank 0.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/tree.hpp"

namespace lockstep::internal {

Program all_reduce_reduce_broadcast(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  Shape at_zero = shape;
  at_zero.root = 0;
  const BinomialTree tree(at_zero);
  const Slice total = output({0, shape.count});
  const std::vector<After> reduced = binomial_reduce(at_zero, tree, sends, receives, total);
  binomial_broadcast(at_zero, tree, sends, receives, total, reduced);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
