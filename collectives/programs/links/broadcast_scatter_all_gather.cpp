// broadcast "scatter_all_gather": the message is cut in one part per rank; the parts go down a binomial
// tree, each rank receiving those of its subtree, and then travel round a ring until everybody has all.
//
// Ranks are numbered from the root. Number v has the parts v .. v + extent(v) - 1 after the scatter (see
// tree.hpp), so it needs only the others from the ring: in step k number v sends part v - k and receives
// part v - 1 - k, unless the receiver has it. The root receives nothing.
//
// Steps: ceil(log2(world)) + world - 1.
// Bytes sent: at most 2 (world - 1) / world of the message. For long messages.
// M. Barnett et al.: Interprocessor collective communication library (InterCom), 1994.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/tree.hpp"

namespace lockstep::internal {

Program broadcast_scatter_all_gather(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const BinomialTree tree(shape);
  const Blocks parts = Blocks::parts(shape.count, shape.world);
  const int number = tree.number();
  const auto part = [&](Range range) { return tree.at_root() ? input(range) : output(range); };
  const auto has = [&](int v, int index) { return index >= v && index < v + tree.extent(v); };

  After ready;
  if (!tree.at_root())
    ready = receives.recv(tree.parent(), output(parts.joined(number, tree.extent(number))));
  for (auto child = tree.children().rbegin(); child != tree.children().rend(); ++child) {
    sends.send(tree.rank_of(*child), part(parts.joined(*child, tree.extent(*child))), {ready});
  }

  const int next = wrap(number + 1, shape.world), previous = wrap(number - 1, shape.world);
  for (int k = 0; k < shape.world - 1; ++k) {
    const int leaving = wrap(number - k, shape.world), coming = wrap(number - 1 - k, shape.world);
    if (!has(next, leaving)) sends.send(tree.rank_of(next), part(parts[leaving]), {ready});
    if (!has(number, coming)) ready = receives.recv(tree.rank_of(previous), output(parts[coming]));
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
