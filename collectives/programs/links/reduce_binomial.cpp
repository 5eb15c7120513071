// reduce "binomial": sums travel up a binomial tree, pipelined by segment (see tree.hpp).
//
// Steps: ceil(log2(world)).
// Bytes sent: the message, once by every rank but the root.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/tree.hpp"

namespace lockstep::internal {

Program reduce_binomial(const Shape& call) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const BinomialTree tree(call);
  const Shape shape = tree.relays() ? call : seldom_cut(call);
  Slice total = output({0, shape.count});
  if (!tree.at_root()) total = scratch(builder.reserve(tree.children().empty() ? 0 : shape.count));
  binomial_reduce(shape, tree, sends, receives, total);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
