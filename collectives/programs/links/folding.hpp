// Folding: how algorithms made for powers of two work for every world size.
//
// Of `world` ranks, size() = the largest power of two take part; the extra = world - size() others are
// folded into a neighbour. Ranks 0 .. 2 extra - 1 form pairs (2i, 2i + 1): the odd one gives its input to
// the even one before, and gets the result after. Those that take part are numbered 0 .. size() - 1 in rank
// order, so that lower numbers always stand for lower ranks.
#pragma once

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

/// Where a participant's sum is at the start, and when.
struct FoldedInput {
  Slice slice;
  After ready;
};

class Folding {
 public:
  explicit Folding(const Shape& shape)
      : rank_(shape.rank), size_(floor_power_of_two(shape.world)), extra_(shape.world - size_) {}

  int size() const { return size_; }
  bool paired() const { return rank_ < 2 * extra_; }
  bool gives_away() const { return paired() && rank_ % 2 == 1; }
  /// Number of this rank among the participants.
  int number() const { return paired() ? rank_ / 2 : rank_ - extra_; }
  int rank_of(int number) const { return number < extra_ ? 2 * number : number + extra_; }

  /// The whole program of a rank that does not take part.
  void give_away(LaneBuilder& sends, LaneBuilder& receives, Range whole) const {
    const After given = sends.send(rank_ - 1, input(whole));
    receives.recv(rank_ - 1, output(whole), {given});  // in place, the same memory
  }
  /// The start of a participant: its input, or in output the sum of its and its neighbour's.
  FoldedInput take(LaneBuilder& receives, Range whole) const {
    if (!paired()) return {input(whole), {}};
    return {output(whole), receives.recv_reduce(rank_ + 1, input(whole), output(whole), {})};
  }
  void hand_back(LaneBuilder& sends, Range whole, After complete) const {
    if (paired()) sends.send(rank_ + 1, output(whole), {complete});
  }

 private:
  int rank_, size_, extra_;
};

}  // namespace lockstep::internal
