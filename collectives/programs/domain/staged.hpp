// The staged "direct" programs: data passes in blocks through its sender's staging area, in three slots used
// by blocks in turn.
//
//   copy in block 0 | publish
//   for each block q:  copy in block q + 1 | await block q from all | take block q out | publish
//
// A rank's phase q + 1 says: block q is in my slots, and I have taken out block q - 1. The slot that block q
// + 1 takes held block q - 2, which everybody had taken out before the phase q that was awaited last. Phases:
// one per block, so one synchronisation for what fits a slot. Ranks that have nothing to send or to take keep
// step all the same; that is what ends the call safely (see domain.hpp).
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
  StagedBlocks(const Shape& shape, std::uint64_t longest, int pieces)
      : members_(shape),
        pieces_(pieces),
        stride_(shape.staging / static_cast<std::uint64_t>(kSlots * pieces)) {
    if (stride_ >= kAlignment) stride_ -= stride_ % kAlignment;
    const std::uint64_t block = shape.segment == 0 ? stride_ : std::min(stride_, shape.segment);
    blocks_ = segment_count(longest, block);
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
    const auto place = static_cast<std::uint64_t>(q % kSlots * pieces_ + index);
    return members_.staging_of(member, {place * stride_, count});
  }

 private:
  Members members_;
  int pieces_;
  std::uint64_t stride_;
  int blocks_;
};

/// The schedule above, with copy_in(lane, q) and take_out(lane, q) for this rank.
template <typename CopyIn, typename TakeOut>
Program staged_program(const StagedBlocks& staged, CopyIn copy_in, TakeOut take_out) {
  ProgramBuilder builder;
  LaneBuilder lane = builder.lane();
  if (staged.blocks() > 0) copy_in(lane, 0);
  lane.publish();
  if (staged.blocks() == 0) lane.await_all();
  for (int q = 0; q < staged.blocks(); ++q) {
    const bool last = q + 1 == staged.blocks();
    if (!last) copy_in(lane, q + 1);
    lane.await_all();
    take_out(lane, q);
    if (!last) lane.publish();
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
