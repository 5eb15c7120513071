// all_reduce "pull_ring", staged: partial sums travel round a ring, then results do. Each rank reads its left
// neighbour's staging area and no other: for GPUs that reach their neighbours faster than all others, and
// for messages so large that the number of phases does not count.
//
// The message passes in blocks, block q through slot q modulo 2 of every rank's staging half. A slot holds
// the block's parts, one per rank. For each block, as rank r of n:
//
//   copy in part r | publish
//   n - 1 times:  await left | slot part p = left's part p + own input, p = r - 1, r - 2, ... | publish
//   n - 1 times:  await left | slot part p = left's result of p, p = r, r - 1, ... | publish
//   copy out what came in the slot
//
// The last of the sums, of part r + 1, is complete, and goes to the output as well. The last result serves
// nobody: it goes straight to the output, and nothing is published behind it. Results move by copies, which
// GPUs give to their copy engines, and every rank passes on before it takes for itself.
//
// Why a slot's part may be overwritten:
// - By its result: it has come through the right neighbour, who read the partial sum before (or is complete
//   here, and then no sum was there).
// - By block q + 2: this rank has a result of block q + 1, to which every rank contributed after it had left
//   block q.
//
// Synchronisations: 2n - 2 a block, with one neighbour.
// Bytes touched per rank: 7 - 6 / n times the message, of which 2 - 2 / n are read from the neighbour.
// Bits: each part from its own rank on, rounded n - 1 times; the same on all ranks.
// P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/domain/domain.hpp"

namespace lockstep::internal {
namespace {

class PullRing {
 public:
  static constexpr int kSlots = 2;  ///< One block going round, one that others may still be reading.

  explicit PullRing(const Shape& shape)
      : shape_(shape),
        members_(shape),
        lane_(builder_.lane()),
        left_(wrap(shape.rank - 1, shape.world)),
        slots_(shape.count <= longest_block(1) ? 1 : kSlots) {
    if (shape.count == 0) pass(0, {});  // For the phases, which end every call safely (see domain.hpp).
    const int blocks = segment_count(shape.count, longest_block(slots_));
    for (int q = 0; q < blocks; ++q) pass(q, segment_of({0, shape.count}, longest_block(slots_), q));
  }

  Program build() && { return std::move(builder_).build(); }

 private:
  std::uint64_t longest_block(int slots) const {
    return part_stride(shape_, slots) * static_cast<std::uint64_t>(shape_.world);
  }

  /// Of the block on its way: a part in this rank's buffers, and in a member's slot.
  Range in_buffer(int part) const { return {begin_ + parts_[part].begin, parts_[part].count}; }
  Slice in_slot(int member, int part) const {
    const auto place = static_cast<std::uint64_t>(slot_ * shape_.world + part);
    return members_.staging_of(member, {place * part_stride(shape_, slots_), parts_[part].count});
  }

  void pass(int q, Range block) {
    begin_ = block.begin;
    parts_ = aligned_parts(block.count, shape_.world);
    slot_ = q % slots_;
    lane_.copy(input(in_buffer(shape_.rank)), in_slot(shape_.rank, shape_.rank));
    lane_.publish();
    const int last = shape_.world - 1;
    for (int step = 1; step <= last; ++step) add(part_before(step), step == last);
    for (int step = 1; step <= last; ++step) take(part_before(step - 1), step == last);
    for (int step = 1; step < last; ++step) {
      const int part = part_before(step - 1);
      lane_.copy(in_slot(shape_.rank, part), output(in_buffer(part)));
    }
  }
  int part_before(int steps) const { return wrap(shape_.rank - steps, shape_.world); }

  void add(int part, bool last) {
    await_left();
    const Slice operands[] = {in_slot(left_, part), input(in_buffer(part))};
    const Slice sums[] = {in_slot(shape_.rank, part), output(in_buffer(part))};
    lane_.reduce(operands, std::span(sums).first(last ? 2 : 1), last);
    lane_.publish();
  }
  void take(int part, bool last) {
    await_left();
    lane_.copy(in_slot(left_, part), last ? output(in_buffer(part)) : in_slot(shape_.rank, part));
    if (!last) lane_.publish();
  }
  /// Every await is of left's next phase: this rank is one step behind it.
  void await_left() { lane_.await(left_, ++awaited_); }

  const Shape& shape_;
  Members members_;
  ProgramBuilder builder_;
  LaneBuilder lane_;
  const int left_;
  const int slots_;
  std::uint32_t awaited_ = 0;  ///< Phases of left's.
  // The block on its way:
  std::uint64_t begin_ = 0;
  Blocks parts_ = Blocks::parts(0, 1);
  int slot_ = 0;
};

}  // namespace

bool fits_pull_ring(const Shape& shape) {
  return shape.world > 1 && shape.staging >= PullRing::kSlots * static_cast<std::uint64_t>(shape.world);
}

Program all_reduce_pull_ring(const Shape& shape) { return PullRing(shape).build(); }

}  // namespace lockstep::internal
