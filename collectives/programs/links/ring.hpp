// The two phases of the ring algorithms.
//
// The ranks stand in a ring; each sends to its right neighbour and receives from its left one, both all the
// time. The data is cut in one block per rank.
//
// Reduce-scatter: block b starts its journey at rank b + 1 and travels right; every rank on the way adds
// its own block b, and after world - 1 hops the sum is complete at rank b. So in step k rank r sends block
// r - 1 - k and receives block r - 2 - k.
//
// All-gather: the complete block r leaves rank r and travels right; everybody keeps a copy. In step k rank
// r sends block r - k and receives block r - 1 - k.
//
// With Shape::segment a block travels in segments: segment s of step k + 1 may leave as soon as segment s
// of step k has arrived, so that a rank reduces one segment while the next arrives.
//
// Numbers in this account are places in the ring (RingOrder), not ranks.
//
// Steps: world - 1 for each phase.
// Bytes sent: (world - 1) / world of the data by every rank for each phase, the least possible.
// P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <vector>

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

/// The tickets of a block's segments, by segment.
using SegmentTickets = std::vector<After>;

/// The ring's order: that of the ranks, but those that share a host stand side by side, so that the ring
/// enters and leaves every host once, however ranks are dealt to hosts.
class RingOrder {
 public:
  explicit RingOrder(const Shape& shape);
  /// This rank's place.
  int place() const { return place_; }
  int rank_at(int place) const { return ranks_[static_cast<std::size_t>(wrap(place, size()))]; }
  int right() const { return rank_at(place_ + 1); }
  int left() const { return rank_at(place_ - 1); }
  /// Blocks that belong to ranks, by place.
  Blocks by_place(const Blocks& by_rank) const { return by_rank.in_order(ranks_); }

 private:
  int size() const { return static_cast<int>(ranks_.size()); }
  std::vector<int> ranks_;
  int place_ = 0;
};

struct RingLanes {
  LaneBuilder sends, receives;
  explicit RingLanes(ProgramBuilder& builder) : sends(builder.lane()), receives(builder.lane()) {}
};

/// A message without elements is not sent, and has no ticket: the one before still counts.
inline void keep(After& last, After ticket) {
  if (ticket.steps > 0) last = ticket;
}

/// Reduces `blocks` of input: place p ends with block p. A wave of segments of every block makes the whole
/// journey before the next one sets out, so that the partial sums that wait for their departure take no more
/// memory than two waves, however long the blocks are.
class RingReduceScatter {
 public:
  RingReduceScatter(const Shape& shape, ProgramBuilder& builder, RingLanes& lanes, const Blocks& blocks);

  int waves() const { return (segments_ + kWave - 1) / kWave; }
  /// The segments of a wave: [first, last).
  int first(int wave) const { return wave * kWave; }
  int last(int wave) const { return std::min(segments_, first(wave) + kWave); }

  /// Where a finished segment of the own block goes, and when that memory may be written.
  struct Place {
    Slice slice;
    After free;
  };
  /// `place(index, segment)` is asked for every segment of the wave.
  void run(int wave, const std::function<Place(int, Range)>& place);
  /// Of a segment of the last wave that ran: the own block's is finished; the left neighbour's has left.
  After complete(int index) const { return arrived_[slot(index)]; }
  After left(int index) const { return left_[slot(index)]; }

  /// Memory for one wave of segments of the own block.
  Range reserve_wave(ProgramBuilder& builder) const { return builder.reserve(width_ * stride_); }
  Slice in_wave(Range memory, int index, Range segment) const {
    return scratch({memory.begin + slot(index) * stride_, segment.count});
  }

 private:
  static constexpr int kWave = 4;
  static std::size_t slot(int index) { return static_cast<std::size_t>(index % kWave); }
  Range sums(int step) const { return sums_[static_cast<std::size_t>(step % 2)]; }
  After& sent(int step, int index) { return sent_[static_cast<std::size_t>(step % 2)][slot(index)]; }

  const Shape& shape_;
  const RingOrder order_;
  RingLanes& lanes_;
  const Blocks& blocks_;
  const int segments_;  // Of the longest block.
  const std::size_t width_;
  const std::uint64_t stride_;
  // Partial sums wait between arriving in one step and leaving in the next. One half fills while the other is
  // sent.
  Range sums_[2];
  std::array<After, kWave> sent_[2];  // What may overwrite them waits for this.
  std::array<After, kWave> arrived_, left_;
};

/// Collects `blocks` in output: place p begins with block p in `own`, whose segments are there after `ready`
/// (empty: at once). Does not copy `own` to output.
void ring_all_gather(const Shape& shape, RingLanes& lanes, const Blocks& blocks, Slice own,
                     SegmentTickets ready);

}  // namespace lockstep::internal
