// The binomial tree over ranks renumbered so that the root is 0: the parent of a number is the number
// without its lowest set bit.
//
//   world 8:  0 -> 4, 2, 1;  4 -> 6, 5;  2 -> 3;  6 -> 7
//
// The subtree of v is the range v .. v + extent(v) - 1. A message reaches everybody in ceil(log2(world))
// steps.
#pragma once

#include <vector>

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

class BinomialTree {
 public:
  explicit BinomialTree(const Shape& shape);

  /// This rank's number: 0 at the root.
  int number() const { return number_; }
  int rank_of(int number) const { return wrap(number + root_, world_); }
  int parent() const { return rank_of(number_ & (number_ - 1)); }
  bool at_root() const { return number_ == 0; }
  /// Whether any rank passes on what it received.
  bool relays() const { return world_ > 3; }
  /// Numbers of the children, nearest (smallest subtree) first.
  const std::vector<int>& children() const { return children_; }
  /// How many numbers the subtree of `number` holds.
  int extent(int number) const;

 private:
  int world_, root_, number_;
  std::vector<int> children_;
};

/// Reduces everybody's input to the tree's root, by segment: a rank adds its children's sums, smallest
/// subtree first, to its own and passes the total on. Totals are formed in `total` (not used by leaves); at
/// the root they are finished. Returns, by segment, when the total is complete (root), or when this rank's
/// data has left (elsewhere).
std::vector<After> binomial_reduce(const Shape& shape, const BinomialTree& tree, LaneBuilder& sends,
                                   LaneBuilder& receives, Slice total);

/// Spreads the root's `whole` by segment: received into output, sent on to the children, largest subtree
/// first. `ready`: by segment, when the root may send, or elsewhere when output may be overwritten (empty: at
/// once).
void binomial_broadcast(const Shape& shape, const BinomialTree& tree, LaneBuilder& sends,
                        LaneBuilder& receives, Slice at_root, const std::vector<After>& ready);

}  // namespace lockstep::internal
