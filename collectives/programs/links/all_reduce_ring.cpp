// all_reduce "ring": ring reduce-scatter, then ring all-gather (see ring.hpp), piece by piece.
//
// The message is cut in pieces of one block per rank, and every piece makes the whole journey on its own:
// world - 1 steps in which its blocks are reduced, world - 1 in which they are gathered. While one piece is
// gathered the next one is reduced, so that a rank always has something to send, and sends a sum while it
// still lies in its cache. A whole message reduced before any of it is gathered would be read from memory
// twice.
//
// Steps: 2 (world - 1), and world - 1 for each further piece.
// Bytes sent by each rank: 2 (world - 1) / world of the message, the least possible.
// Bits: a block is summed in the order b + 1, b + 2, ..., b by the ranks on its way, once, and then copied:
// equal on all ranks.
#include <algorithm>

#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/ring.hpp"

namespace lockstep::internal {
namespace {

/// Elements of a message that stays in a core's cache, in segments, and of a block of it. There nothing is
/// gained by short blocks where links stream, and each costs system calls.
constexpr std::uint64_t kCachedSegments = 16, kCachedBlockSegments = 4;

/// Elements of a piece's blocks.
std::uint64_t block_elements(const Shape& shape) {
  const std::uint64_t segment = std::min(shape.segment, shape.count);
  const bool cached = shape.streams && shape.count / kCachedSegments <= segment;
  return cached ? kCachedBlockSegments * segment : segment;
}

/// One piece on its way: `elements` of the message, a block of it for each rank.
class Piece {
 public:
  Piece(const Shape& shape, const RingOrder& order, RingLanes& lanes, Range elements)
      : lanes_(lanes),
        order_(order),
        blocks_(Blocks::parts(elements.count, shape.world)),
        begin_(elements.begin),
        world_(shape.world) {}

  /// This place sends block place - 1 - step as far as it is summed, and adds its own to block place - 2 -
  /// step.
  void reduce(int step) {
    const Range leaving = block(order_.place() - 1 - step), coming = block(order_.place() - 2 - step);
    sent_.push_back(
        lanes_.sends.send(order_.right(), step == 0 ? input(leaving) : output(leaving), {arrived_}));
    const RecvReduceFlags how{.received_first = true, .finish = step == world_ - 2};
    arrived_ = lanes_.receives.recv_reduce(order_.left(), input(coming), output(coming), how);
  }

  /// This place sends the complete block place - step and receives block place - 1 - step.
  void gather(int step) {
    lanes_.sends.send(order_.right(), output(block(order_.place() - step)), {arrived_});
    // In place, that block lies where its unfinished sum was sent from.
    const After left_me = sent_[static_cast<std::size_t>(step)];
    arrived_ = lanes_.receives.recv(order_.left(), output(block(order_.place() - 1 - step)), {left_me});
  }

 private:
  Range block(int index) const {
    const Range range = blocks_[index];
    return {begin_ + range.begin, range.count};
  }

  RingLanes& lanes_;
  const RingOrder& order_;
  const Blocks blocks_;
  const std::uint64_t begin_;
  const int world_;
  After arrived_;            // The block that the last step received.
  std::vector<After> sent_;  // By step of reduce().
};

}  // namespace

Program all_reduce_ring(const Shape& shape) {
  ProgramBuilder builder;
  RingLanes lanes(builder);
  const RingOrder order(shape);
  const Range whole{0, shape.count};
  if (shape.world == 1) lanes.receives.copy_finished(input(whole), output(whole));
  const std::uint64_t piece = block_elements(shape) * static_cast<std::uint64_t>(shape.world);
  std::vector<Piece> pieces;
  for (int i = 0; i < segment_count(shape.count, piece); ++i) {
    pieces.emplace_back(shape, order, lanes, segment_of(whole, piece, i));
  }
  for (std::size_t i = 0; i <= pieces.size(); ++i) {
    for (int step = 0; step < shape.world - 1; ++step) {
      if (i < pieces.size()) pieces[i].reduce(step);
      if (i > 0) pieces[i - 1].gather(step);
    }
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
