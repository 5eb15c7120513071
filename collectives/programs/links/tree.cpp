#include "collectives/programs/links/tree.hpp"

#include <algorithm>

namespace lockstep::internal {

BinomialTree::BinomialTree(const Shape& shape)
    : world_(shape.world), root_(shape.root), number_(wrap(shape.rank - shape.root, shape.world)) {
  for (int bit = 1; number_ + bit < world_ && (number_ & bit) == 0; bit *= 2)
    children_.push_back(number_ + bit);
}

int BinomialTree::extent(int number) const {
  if (number == 0) return world_;
  return std::min(number & -number, world_ - number);
}

std::vector<After> binomial_reduce(const Shape& shape, const BinomialTree& tree, LaneBuilder& sends,
                                   LaneBuilder& receives, Slice total) {
  const Range whole{0, shape.count};
  std::vector<After> done;
  for (int s = 0; s < segment_count(shape.count, shape.segment); ++s) {
    const Range part = segment_of(whole, shape.segment, s);
    const Slice mine = input(part), larger = within(total, part);
    Slice sum = mine;
    After ready;
    if (shape.world == 1) ready = receives.copy_finished(mine, larger);
    for (const int child : tree.children()) {
      const bool last = tree.at_root() && child == tree.children().back();
      ready = receives.recv_reduce(tree.rank_of(child), sum, larger, {.finish = last});
      sum = larger;
    }
    done.push_back(tree.at_root() ? ready : sends.send(tree.parent(), sum, {ready}));
  }
  return done;
}

void binomial_broadcast(const Shape& shape, const BinomialTree& tree, LaneBuilder& sends,
                        LaneBuilder& receives, Slice at_root, const std::vector<After>& ready) {
  const Slice source = tree.at_root() ? at_root : output({0, shape.count});
  for (int s = 0; s < segment_count(shape.count, shape.segment); ++s) {
    const Slice segment = within(source, segment_of({0, shape.count}, shape.segment, s));
    After there = ready.empty() ? After{} : ready[static_cast<std::size_t>(s)];
    if (!tree.at_root()) there = receives.recv(tree.parent(), segment, {there});
    for (auto child = tree.children().rbegin(); child != tree.children().rend(); ++child) {
      sends.send(tree.rank_of(*child), segment, {there});
    }
  }
}

}  // namespace lockstep::internal
