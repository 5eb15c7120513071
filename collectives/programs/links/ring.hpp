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
// Steps: world - 1 for each phase.
// Bytes sent: (world - 1) / world of the data by every rank for each phase, the least possible.
// P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
#pragma once

#include <vector>

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

/// The tickets of a block's segments, by segment.
using SegmentTickets = std::vector<After>;

struct RingLanes {
  LaneBuilder sends, receives;
  explicit RingLanes(ProgramBuilder& builder) : sends(builder.lane()), receives(builder.lane()) {}
};

/// Where the partial sums of a reduce-scatter wait between arriving in one step and leaving in the next: in
/// two scratch slots used in turn. One fills while the other is sent.
class PartialSums {
 public:
  PartialSums(ProgramBuilder& builder, const Blocks& blocks, std::uint64_t segment);
  /// Memory for segment `index` (the range `segment`) that arrives in step `step`.
  Slice at(int step, int index, Range segment) const;
  /// Ticket of the send that must be over before that memory may be written.
  After free_after(int step, int index) const { return sent_[cell(step, index)]; }
  void sent(int step, int index, After ticket) { sent_[cell(step, index)] = ticket; }

 private:
  /// Segments are stored at a fixed stride, so that only messages with the same index meet in a cell.
  std::size_t cell(int step, int index) const {
    return static_cast<std::size_t>((step % 2) * segments_ + index);
  }
  int segments_;
  std::uint64_t stride_;
  Range memory_;
  std::vector<After> sent_;
};

/// What a reduce-scatter leaves behind.
struct RingReduced {
  SegmentTickets result;  ///< When each segment of the result is complete.
  std::vector<SegmentTickets>
      sent;  ///< By step k: when block rank - 1 - k has left, and its place may be overwritten.
};

/// Reduces `blocks` of input; rank r ends with block r, finished, in `result` (as long as that block).
RingReduced ring_reduce_scatter(const Shape& shape, RingLanes& lanes, const Blocks& blocks, PartialSums& sums,
                                Slice result);

/// Collects `blocks` in output: rank r begins with block r in `own`, whose segments are there after `ready`
/// (empty: at once). Does not copy `own` to output.
void ring_all_gather(const Shape& shape, RingLanes& lanes, const Blocks& blocks, Slice own,
                     SegmentTickets ready);

/// The part of `whole` that holds `segment` of the block that begins at element `begin`.
inline Slice part_of_slice(Slice whole, std::uint64_t begin, Range segment) {
  return {whole.space, whole.member, whole.offset + segment.begin - begin, segment.count};
}

}  // namespace lockstep::internal
