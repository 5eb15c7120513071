#include "collectives/programs/links/pairwise.hpp"

namespace lockstep::internal {

After direct_reduce_scatter(const Shape& shape, ProgramBuilder& builder, LaneBuilder& sends,
                            LaneBuilder& receives, const Blocks& blocks, Slice result,
                            std::vector<After>* sent) {
  const Range own = blocks[shape.rank];
  std::vector<Slice> operands(static_cast<std::size_t>(shape.world), input(own));
  if (sent != nullptr) sent->assign(operands.size(), {});
  for_each_round(shape, [&](int to, int from) {
    const After left = sends.send(to, input(blocks[to]));
    if (sent != nullptr) (*sent)[static_cast<std::size_t>(to)] = left;
    Slice& arriving = operands[static_cast<std::size_t>(from)];
    arriving = scratch(builder.reserve(own.count));
    receives.recv(from, arriving);
  });
  return receives.reduce(operands, {&result, 1}, true);
}

}  // namespace lockstep::internal
