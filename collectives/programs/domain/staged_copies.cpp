// broadcast, scatter, gather, all_gather, all_gather_v and all_to_all "direct", staged: see staged.hpp. A
// slot holds one piece, or one for each rank where the pieces differ by receiver.
//
// Bytes touched: 4 for each byte that changes rank, 2 for a rank's own block.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/domain/staged.hpp"

namespace lockstep::internal {

bool fits_piece(const Shape& shape) { return shape.staging >= StagedBlocks::kSlots; }
bool fits_piece_per_rank(const Shape& shape) {
  return shape.staging >= StagedBlocks::kSlots * static_cast<std::uint64_t>(shape.world);
}

Program broadcast_staged(const Shape& shape) {
  const StagedBlocks staged(shape, shape.count, 1);
  const Range whole{0, shape.count};
  const auto in_slot = [&](int q) { return staged.slot(q, shape.root, 0, staged.block(q, whole).count); };
  if (shape.rank == shape.root) {
    return staged_giver_program(staged, kEverybody, [&](LaneBuilder& lane, int q) {
      if (shape.world > 1) lane.copy(input(staged.block(q, whole)), in_slot(q));
    });
  }
  return staged_program(
      staged, shape.root, [](LaneBuilder&, int) {},
      [&](LaneBuilder& lane, int q) { lane.copy(in_slot(q), output(staged.block(q, whole))); });
}

/// The root takes its own block straight from its input.
Program scatter_staged(const Shape& shape) {
  const StagedBlocks staged(shape, shape.count, shape.world);
  const Blocks blocks = Blocks::of(shape);
  const Range own{0, shape.count};
  if (shape.rank == shape.root) {
    return staged_giver_program(staged, kEverybody, [&](LaneBuilder& lane, int q) {
      for (int to = 0; to < shape.world; ++to) {
        const Range block = staged.block(q, blocks[to]);
        const bool mine = to == shape.root;
        lane.copy(input(block),
                  mine ? output(staged.block(q, own)) : staged.slot(q, shape.root, to, block.count));
      }
    });
  }
  return staged_program(
      staged, shape.root, [](LaneBuilder&, int) {},
      [&](LaneBuilder& lane, int q) {
        const Range block = staged.block(q, own);
        lane.copy(staged.slot(q, shape.root, shape.rank, block.count), output(block));
      });
}

/// gather, all_gather, all_gather_v: they differ in who gives and who takes.
Program gather_staged(const Shape& shape) {
  const Blocks blocks = Blocks::of(shape);
  const StagedBlocks staged(shape, blocks.longest(), 1);
  const Range own{0, blocks[shape.rank].count};
  const auto give = [&](LaneBuilder& lane, int q) {
    const Range block = staged.block(q, own);
    lane.copy(input(block), staged.slot(q, shape.rank, 0, block.count));
  };
  const auto take = [&](LaneBuilder& lane, int q) {
    for (int from = 0; from < shape.world; ++from) {
      const Range block = staged.block(q, blocks[from]);
      const bool mine = from == shape.rank;
      lane.copy(mine ? input(staged.block(q, own)) : staged.slot(q, from, 0, block.count), output(block));
    }
  };
  if (shape.collective == Collective::gather) {
    if (shape.rank != shape.root) return staged_giver_program(staged, shape.root, give);
    return staged_program(
        staged, kEverybody, [](LaneBuilder&, int) {}, take);
  }
  return staged_program(
      staged, kEverybody,
      [&](LaneBuilder& lane, int q) {
        if (shape.world > 1) give(lane, q);
      },
      take);
}

Program all_to_all_staged(const Shape& shape) {
  const StagedBlocks staged(shape, shape.count, shape.world);
  const Blocks blocks = Blocks::of(shape);
  return staged_program(
      staged, kEverybody, [&](LaneBuilder& lane, int q) { copy_in_each(lane, q, staged, shape, blocks); },
      [&](LaneBuilder& lane, int q) {
        for (int from = 0; from < shape.world; ++from) {
          const Range block = staged.block(q, blocks[from]);
          const bool mine = from == shape.rank;
          lane.copy(mine ? input(block) : staged.slot(q, from, shape.rank, block.count), output(block));
        }
      });
}

}  // namespace lockstep::internal
