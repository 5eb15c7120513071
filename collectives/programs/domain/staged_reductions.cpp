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
namespace {

/// Block q of a piece of the input, which is the index-th in the others' slots, to the output.
void reduce_versions(LaneBuilder& lane, int q, const StagedBlocks& staged, const Shape& shape, Range piece,
                     int index) {
  const Range block = staged.block(q, piece);
  std::vector<Slice> versions;
  for (int from = 0; from < shape.world; ++from)
    versions.push_back(from == shape.rank ? input(block) : staged.slot(q, from, index, block.count));
  const Slice result = output({block.begin - piece.begin, block.count});
  lane.reduce(versions, {&result, 1}, true);
}

}  // namespace

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
      [&](LaneBuilder& lane, int q) { reduce_versions(lane, q, staged, shape, whole, 0); });
}

Program reduce_scatter_staged(const Shape& shape) {
  const Blocks blocks = Blocks::of(shape);
  const StagedBlocks staged(shape, blocks.longest(), shape.world);
  const Range own = blocks[shape.rank];
  return staged_program(
      staged, kEverybody, [&](LaneBuilder& lane, int q) { copy_in_each(lane, q, staged, shape, blocks); },
      [&](LaneBuilder& lane, int q) { reduce_versions(lane, q, staged, shape, own, shape.rank); });
}

}  // namespace lockstep::internal
