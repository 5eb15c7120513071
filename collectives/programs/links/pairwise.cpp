#include "collectives/programs/links/pairwise.hpp"

#include <algorithm>

namespace lockstep::internal {

DirectReduceScatter::DirectReduceScatter(const Shape& shape, ProgramBuilder& builder, LaneBuilder& sends,
                                         LaneBuilder& receives, const Blocks& blocks)
    : shape_(shape), sends_(sends), receives_(receives), blocks_(blocks) {
  const std::uint64_t own = blocks[shape.rank].count;
  const std::uint64_t longest = shape.segment == 0 ? own : std::min(own, shape.segment);
  for (int rank = 0; rank < shape.world; ++rank)
    arriving_.push_back(rank == shape.rank ? Range{} : builder.reserve(longest));
}

int DirectReduceScatter::segments() const { return segment_count(blocks_.longest(), shape_.segment); }

Range DirectReduceScatter::segment(int rank, int index) const {
  return segment_if_any(blocks_[rank], shape_.segment, index);
}

After DirectReduceScatter::run(int index, Slice result, std::vector<After>* sent) {
  const Range own = segment(shape_.rank, index);
  std::vector<Slice> operands(arriving_.size(), input(own));
  if (sent != nullptr) sent->assign(operands.size(), {});
  for_each_round(shape_, [&](int to, int from) {
    const After left = sends_.send(to, input(segment(to, index)));
    if (sent != nullptr) (*sent)[static_cast<std::size_t>(to)] = left;
    Slice& operand = operands[static_cast<std::size_t>(from)];
    operand = scratch({arriving_[static_cast<std::size_t>(from)].begin, own.count});
    receives_.recv(from, operand);
  });
  return receives_.reduce(operands, {&result, 1}, true);
}

}  // namespace lockstep::internal
