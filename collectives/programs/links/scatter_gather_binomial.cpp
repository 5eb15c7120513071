// scatter and gather "binomial": blocks go down, or come up, a binomial tree, each message holding the
// blocks of a whole subtree.
//
// Ranks are numbered from the root (see tree.hpp). Inner ranks keep their subtree's blocks in scratch in
// that order. In the root's buffer the blocks lie in rank order, so the one subtree that holds the last
// rank and rank 0 crosses the buffer's end: its blocks travel in two messages between the root and that
// child.
//
// Steps: ceil(log2(world)).
// Bytes: each rank passes on its subtree's blocks. For short blocks.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/tree.hpp"

namespace lockstep::internal {
namespace {

/// The blocks of a subtree on the way between this rank and a child: one or two pairs of slices that are one
/// message each.
class SubtreeBlocks {
 public:
  SubtreeBlocks(const Shape& shape, const BinomialTree& tree)
      : shape_(shape), tree_(tree), blocks_(Blocks::of(shape)) {}

  /// Calls visit(first, count) for the numbers of `child`'s subtree, in as many runs as messages are needed
  /// from or to its parent.
  template <typename Visit>
  void for_each_message(int child, Visit visit) const {
    const int count = tree_.extent(child);
    const bool child_of_root = (child & (child - 1)) == 0;
    // numbers of the subtree before the buffer's end
    const int until_rank_zero = shape_.world - shape_.root - child;
    if (child_of_root && until_rank_zero > 0 && until_rank_zero < count) {
      visit(child, until_rank_zero);
      visit(child + until_rank_zero, count - until_rank_zero);
    } else {
      visit(child, count);
    }
  }
  /// Where `count` blocks from `number` on lie: in the root's buffer by rank, elsewhere in scratch by number.
  Range in_root_buffer(int number, int count) const { return blocks_.joined(tree_.rank_of(number), count); }
  Range in_scratch(int number, int count) const { return blocks_.joined(number - tree_.number(), count); }
  Range block(int rank) const { return blocks_[rank]; }

 private:
  const Shape& shape_;
  const BinomialTree& tree_;
  Blocks blocks_;
};

/// Scratch for an inner rank's subtree; leaves and the root need none.
void reserve_subtree(const Shape& shape, const BinomialTree& tree, ProgramBuilder& builder) {
  const int extent = tree.extent(tree.number());
  if (!tree.at_root() && extent > 1) builder.reserve(static_cast<std::uint64_t>(extent) * shape.count);
}

}  // namespace

Program scatter_binomial(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const BinomialTree tree(shape);
  const SubtreeBlocks subtree(shape, tree);
  const Range own{0, shape.count};
  reserve_subtree(shape, tree, builder);
  const bool leaf = tree.children().empty();

  After arrived;
  if (!tree.at_root()) {
    subtree.for_each_message(tree.number(), [&](int first, int count) {
      arrived = receives.recv(tree.parent(), leaf ? output(own) : scratch(subtree.in_scratch(first, count)));
    });
  }
  for (auto child = tree.children().rbegin(); child != tree.children().rend(); ++child) {
    subtree.for_each_message(*child, [&](int first, int count) {
      const Slice blocks = tree.at_root() ? input(subtree.in_root_buffer(first, count))
                                          : scratch(subtree.in_scratch(first, count));
      sends.send(tree.rank_of(*child), blocks, {arrived});
    });
  }
  if (tree.at_root()) {
    builder.lane().copy(input(subtree.block(shape.rank)), output(own));
  } else if (!leaf) {
    receives.copy(scratch(own), output(own));
  }
  return std::move(builder).build();
}

Program gather_binomial(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  const BinomialTree tree(shape);
  const SubtreeBlocks subtree(shape, tree);
  const Range own{0, shape.count};
  reserve_subtree(shape, tree, builder);
  const bool leaf = tree.children().empty();

  After complete;
  if (tree.at_root()) {
    builder.lane().copy(input(own), output(subtree.block(shape.rank)));
  } else if (!leaf) {
    complete = receives.copy(input(own), scratch(own));
  }
  for (const int child : tree.children()) {
    subtree.for_each_message(child, [&](int first, int count) {
      const Slice blocks = tree.at_root() ? output(subtree.in_root_buffer(first, count))
                                          : scratch(subtree.in_scratch(first, count));
      complete = receives.recv(tree.rank_of(child), blocks);
    });
  }
  if (!tree.at_root()) {
    subtree.for_each_message(tree.number(), [&](int first, int count) {
      sends.send(tree.parent(), leaf ? input(own) : scratch(subtree.in_scratch(first, count)), {complete});
    });
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
