// Blocks: how a buffer is cut among ranks, and the sizes of a call's buffers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

/// Adjacent ranges, one per rank. An index is taken modulo the number of blocks, so that ring algorithms may
/// write blocks[rank - k].
class Blocks {
 public:
  /// `count` elements in `parts` nearly equal parts.
  static Blocks parts(std::uint64_t count, int parts);
  /// One block per count.
  explicit Blocks(std::span<const std::uint64_t> counts);
  /// The blocks of a collective whose counts are per block: all_gather, reduce_scatter, scatter, gather,
  /// all_to_all, and all_gather_v and reduce_scatter_v. For scatter_v and gather_v meaningful at root only.
  static Blocks of(const Shape& shape);

  /// The same ranges in another order: index i is now that of `order[i]`.
  Blocks in_order(std::vector<int> order) const;

  int size() const { return static_cast<int>(begins_.size()) - 1; }
  Range operator[](int index) const;
  /// `blocks` blocks from `first` on, which must not run over the end; of blocks in their own order.
  Range joined(int first, int blocks) const;
  std::uint64_t total() const { return begins_.back(); }
  std::uint64_t longest() const;

 private:
  Blocks() = default;
  std::vector<std::uint64_t> begins_;  ///< size() + 1 entries.
  std::vector<int> order_;             ///< Empty: their own.
};

/// Whether every rank passes its own counts (the collectives that end in _v).
bool has_counts(Collective collective);
/// Whether the collective reduces, so that its results are finished (avg divides).
constexpr bool is_reduction(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce || c == Collective::reduce_scatter ||
         c == Collective::reduce_scatter_v;
}

/// Elements of this rank's input and output in the call; 0 where the rank has none (the output of reduce off
/// root, ...). A broadcast has one buffer: root's input, everybody else's output.
std::uint64_t input_elements(const Shape& shape);
std::uint64_t output_elements(const Shape& shape);

/// `count` elements cut into pipelined messages of at most `segment` (0: one message), nearly equal. At least
/// one unless count is 0.
int segment_count(std::uint64_t count, std::uint64_t segment);
Range segment_of(Range whole, std::uint64_t segment, int index);
/// The same, and empty where `whole` has fewer segments: of blocks that are walked side by side.
Range segment_if_any(Range whole, std::uint64_t segment, int index);

/// The elements `part` of a slice.
inline Slice within(Slice whole, Range part) {
  return {whole.space, whole.member, whole.offset + part.begin, part.count};
}

/// The call with messages of up to 64 segments: where nobody passes on what it received, a cut only costs a
/// further message. Not without bound, because what is left of a message goes before word of a failure.
Shape seldom_cut(Shape shape);

/// Largest power of two that is at most `value` (>= 1).
int floor_power_of_two(int value);
/// `value` modulo `world`, never negative.
inline int wrap(int value, int world) { return (value % world + world) % world; }

}  // namespace lockstep::internal
