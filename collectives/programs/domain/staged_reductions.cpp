// reduce, reduce_scatter and reduce_scatter_v "direct", staged: the receiver reduces all versions in one
// pass; its own version it takes from its input. See staged.hpp. For reduce on more than a few ranks
// "two_shot" shares the root's work.
//
// Bytes touched: 2 (copy in) + 1 (reduced) for each byte that changes rank, 1 for the own version, 1 for
// the result.
// Bits: rank order, one rounding.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/domain/staged.hpp"

namespace lockstep::internal {

Program reduce_staged(const Shape& shape) {
  const StagedBlocks staged(shape, shape.count, 1);
  const Range whole{0, shape.count};
  if (shape.rank != shape.root) {
    return staged_giver_program(staged, shape.root, [&](LaneBuilder& lane, int q) {
      const Range block = staged.block(q, whole);
      lane.copy(input(block), staged.slot(q, shape.rank, 0, block.count));
    });
  }
  return staged_program(
      staged, kEverybody, [](LaneBuilder&, int) {},
      [&](LaneBuilder& lane, int q) {
        const Range block = staged.block(q, whole);
        std::vector<Slice> versions;
        for (int from = 0; from < shape.world; ++from) {
          versions.push_back(from == shape.rank ? input(block) : staged.slot(q, from, 0, block.count));
        }
        const Slice result = output(block);
        lane.reduce(versions, {&result, 1}, true);
      });
}

Program reduce_scatter_staged(const Shape& shape) {
  const Blocks blocks = Blocks::of(shape);
  const StagedBlocks staged(shape, blocks.longest(), shape.world);
  const Range own = blocks[shape.rank];
  return staged_program(
      staged, kEverybody,
      [&](LaneBuilder& lane, int q) {
        for (int to = 0; to < shape.world; ++to) {
          const Range block = staged.block(q, blocks[to]);
          if (to != shape.rank) lane.copy(input(block), staged.slot(q, shape.rank, to, block.count));
        }
      },
      [&](LaneBuilder& lane, int q) {
        const Range block = staged.block(q, own);
        std::vector<Slice> versions;
        for (int from = 0; from < shape.world; ++from) {
          versions.push_back(from == shape.rank ? input(block)
                                                : staged.slot(q, from, shape.rank, block.count));
        }
        const Slice result = output({block.begin - own.begin, block.count});
        lane.reduce(versions, {&result, 1}, true);
      });
}

}  // namespace lockstep::internal
