// The staged "direct" programs: data passes in blocks through its sender's staging area, each in a slot of
// its own where there is room for all, or else in as many slots as there is room for, at least three, in
// turn.
//
//   a rank that takes copies in block 0 and publishes; then for each block q:
//     copy in block q + 1 | await block q | take block q out | publish
//   a rank that only gives, for each block q:
//     await that its slot is free | copy in block q | publish
//
// A rank's phase q + 1 says: block q is in my slots, and I have taken out block q - 1. The slot of block q
// held block q - 3 before, or an earlier one, which everybody had taken out in phase q - 1. Ranks that have
// nothing to give or to take keep step all the same; that is what ends the call safely (see domain.hpp).
//
// Synchronisations: one per block, so one for what fits a slot.
#pragma once

#include <algorithm>

#include "collectives/programs/domain/domain.hpp"

namespace lockstep::internal {

/// How the buffers are cut and where the pieces lie. All ranks compute the same number of blocks from what
/// all know.
class StagedBlocks {
 public:
  static constexpr int kSlots = 3;

  /// `longest`: elements of the longest piece that anybody sends to anybody; a slot holds `pieces` of them.
  StagedBlocks(const Shape& shape, std::uint64_t longest, int pieces) : members_(shape), pieces_(pieces) {
    blocks_ = slots_ = std::max(1, segment_count(longest, longest_block(shape)));
    stride_ = stride(shape, slots_);
    if (block(0, {0, longest}).count <= stride_) return;  // A slot for each block.
    const std::uint64_t slot = static_cast<std::uint64_t>(pieces) * (longest_block(shape) + kAlignment);
    slots_ = std::max(kSlots, static_cast<int>(shape.staging / slot));
    stride_ = stride(shape, slots_);
    blocks_ = segment_count(longest, std::min(stride_, longest_block(shape)));
  }

  int blocks() const { return blocks_; }
  /// Block q of a piece, where the piece lies in a buffer.
  Range block(int q, Range piece) const {
    const Range part =
        part_of(piece.count, static_cast<std::uint64_t>(blocks_), static_cast<std::uint64_t>(q));
    return {piece.begin + part.begin, part.count};
  }
  /// Where block q of a piece of `count` elements lies in `member`'s staging area, when it is the index-th
  /// piece of the slot.
  Slice slot(int q, int member, int index, std::uint64_t count) const {
    const auto place = static_cast<std::uint64_t>(q % slots_ * pieces_ + index);
    return members_.staging_of(member, {place * stride_, count});
  }

  /// Two thirds of a segment (170 KiB): shorter blocks cost ranks that share cores more synchronisations, and
  /// longer ones leave the caches before they are taken out.
  static std::uint64_t longest_block(const Shape& shape) {
    return shape.segment == 0 ? shape.staging : (2 * shape.segment + 2) / 3;
  }

 private:
  /// Elements between the pieces of `slots` slots.
  std::uint64_t stride(const Shape& shape, int slots) const {
    return aligned_stride(shape.staging,
                          static_cast<std::uint64_t>(slots) * static_cast<std::uint64_t>(pieces_));
  }

  Members members_;
  int pieces_;
  int slots_;
  std::uint64_t stride_;
  int blocks_;
};

// Whom the phases of the schedules are awaited from: everybody, or the root alone where only it gives or
// takes. Where that does not show that everybody has entered the call, it is awaited at the end.

/// The schedule of a rank that takes, from `giver`.
template <typename CopyIn, typename TakeOut>
Program staged_program(const StagedBlocks& staged, int giver, CopyIn copy_in, TakeOut take_out) {
  ProgramBuilder builder;
  LaneBuilder lane = builder.lane();
  const int blocks = staged.blocks();
  if (blocks > 0) copy_in(lane, 0);
  lane.publish();
  for (int q = 0; q < blocks; ++q) {
    if (q + 1 < blocks) copy_in(lane, q + 1);
    lane.await(giver, static_cast<std::uint32_t>(q + 1));
    take_out(lane, q);
    if (q + 1 < blocks) lane.publish();
  }
  // A giver that is more blocks ahead has awaited everybody, and the phases it published since say so.
  if (giver != kEverybody ? blocks <= StagedBlocks::kSlots : blocks == 0) lane.await(kEverybody, 1);
  return std::move(builder).build();
}

/// The schedule of a rank that only gives, to `taker`. It may be up to kSlots blocks ahead.
template <typename CopyIn>
Program staged_giver_program(const StagedBlocks& staged, int taker, CopyIn copy_in) {
  ProgramBuilder builder;
  LaneBuilder lane = builder.lane();
  for (int q = 0; q < staged.blocks(); ++q) {
    if (q >= StagedBlocks::kSlots) lane.await(taker, static_cast<std::uint32_t>(q - 1));
    copy_in(lane, q);
    lane.publish();
  }
  if (staged.blocks() == 0) lane.publish();
  if (staged.blocks() <= StagedBlocks::kSlots) lane.await(kEverybody, 1);
  return std::move(builder).build();
}

/// Block q of every other rank's piece, into the slot's place for that rank.
inline void copy_in_each(LaneBuilder& lane, int q, const StagedBlocks& staged, const Shape& shape,
                         const Blocks& pieces) {
  for (int to = 0; to < shape.world; ++to) {
    const Range block = staged.block(q, pieces[to]);
    if (to != shape.rank) lane.copy(input(block), staged.slot(q, shape.rank, to, block.count));
  }
}

}  // namespace lockstep::internal
