// Direct exchange: in round k every rank sends to the rank k places to its right and receives from the rank
// k places to its left, so that in each round everybody sends once and receives once, and nobody is a hot
// spot. Works for any world size.
#pragma once

#include <vector>

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

/// Calls visit(to, from) for rounds 1 .. world - 1.
template <typename Visit>
void for_each_round(const Shape& shape, Visit visit) {
  for (int round = 1; round < shape.world; ++round) {
    visit(wrap(shape.rank + round, shape.world), wrap(shape.rank - round, shape.world));
  }
}

/// Sends block p of input to every rank p, receives everybody's version of the own block into scratch, and
/// reduces them in rank order in one pass; segment by segment, so that scratch holds one of each rank.
/// Bits: one rounding for f16 and bf16.
class DirectReduceScatter {
 public:
  DirectReduceScatter(const Shape& shape, ProgramBuilder& builder, LaneBuilder& sends, LaneBuilder& receives,
                      const Blocks& blocks);
  /// Of the longest block.
  int segments() const;
  /// Segment `index` of a rank's block; empty where it has fewer.
  Range segment(int rank, int index) const;
  /// Segment `index` of the own block ends, finished, in `result` (as long as that segment). Returns its
  /// ticket. `sent`, when given: by rank, when the segment of its block has left.
  After run(int index, Slice result, std::vector<After>* sent = nullptr);

 private:
  const Shape& shape_;
  LaneBuilder &sends_, &receives_;
  const Blocks& blocks_;
  std::vector<Range> arriving_;  // By rank. What reduces it stands in the lane that fills it again.
};

}  // namespace lockstep::internal
