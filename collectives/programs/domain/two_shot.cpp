// all_reduce and reduce "two_shot", staged: for buffers that only their owner can address. The message
// passes in blocks through a small staging area that stays in cache, and each rank reduces one part of
// every block.
//
// The staging half holds three slots, used by blocks in turn. A slot holds one part per rank; in rank r's
// slot part i is r's version of what rank i reduces, and part r, which r need not offer to anyone, takes
// the result.
//
//   copy in block 0 | publish | copy in block 1 | await
//   for each block q:  reduce own part of q | publish | copy in block q + 2 | await | copy out block q
//
// The phase published after reducing block q says two things: my result of block q is there, and so are my
// versions of block q + 1. Copying in the block after that gives the others time to say the same, so that
// the await seldom waits.
//
// Why a slot is free when block q + 3 takes it from block q:
// - The versions are overwritten after block q + 1 is reduced. They were read by everybody's reduction of
//   block q, which came before a phase awaited at the end of block q.
// - The result is overwritten when block q + 3 is reduced. It was read when everybody copied out block q,
//   before the phase awaited at the end of block q + 1.
// One block or two have a slot each, and as there are fewer slots they may be longer.
//
// reduce: only the root copies out.
//
// Synchronisations: blocks + 1.
// Bytes touched per rank: 5 - 2 / world times the message, against 7 when own parts are staged and results
// copied twice.
// Bits: rank order, one rounding.
#include <algorithm>

#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/domain/domain.hpp"

namespace lockstep::internal {
namespace {

constexpr int kSlots = 3;  ///< One block being reduced, one arriving, one leaving.

std::uint64_t longest_block(const Shape& shape, int slots) {
  const std::uint64_t room = part_stride(shape, slots) * static_cast<std::uint64_t>(shape.world);
  return shape.segment == 0 ? room : std::min(room, longest_two_shot_block(shape));
}

/// As many as there are blocks, where those are few.
int slots_for(const Shape& shape) {
  int slots = shape.segment == 0 ? kSlots : 1;
  while (slots < kSlots && segment_count(shape.count, longest_block(shape, slots)) > slots) ++slots;
  return slots;
}

class TwoShot {
 public:
  explicit TwoShot(const Shape& shape)
      : shape_(shape),
        members_(shape),
        lane_(builder_.lane()),
        slots_(slots_for(shape)),
        stride_(part_stride(shape, slots_)) {
    const std::uint64_t longest = longest_block(shape, slots_);
    blocks_ = segment_count(shape.count, longest);
    for (int q = 0; q < blocks_; ++q) {
      const Range block = segment_of({0, shape.count}, longest, q);
      begins_.push_back(block.begin);
      parts_.push_back(aligned_parts(block.count, shape.world));
    }
  }

  Program build() && {
    copy_in(0);
    lane_.publish();
    copy_in(1);
    lane_.await_all();
    for (int q = 0; q < blocks_; ++q) {
      reduce(q);
      lane_.publish();
      copy_in(q + 2);
      if (takes_result() || q + 1 < blocks_) lane_.await_all();
      copy_out(q);
    }
    return std::move(builder_).build();
  }

 private:
  /// Part `owner` of block q: in the buffers, and in a member's slot.
  Range in_buffer(int q, int owner) const {
    const Range part = parts_[static_cast<std::size_t>(q)][owner];
    return {begins_[static_cast<std::size_t>(q)] + part.begin, part.count};
  }
  Slice in_slot(int q, int member, int owner) const {
    const auto place = static_cast<std::uint64_t>(q % slots_ * shape_.world + owner);
    return members_.staging_of(member, {place * stride_, parts_[static_cast<std::size_t>(q)][owner].count});
  }

  void copy_in(int q) {
    if (q >= blocks_) return;
    for (int owner = 0; owner < shape_.world; ++owner) {
      if (owner != shape_.rank) lane_.copy(input(in_buffer(q, owner)), in_slot(q, shape_.rank, owner));
    }
  }
  bool takes_result() const {
    return shape_.collective == Collective::all_reduce || shape_.rank == shape_.root;
  }
  bool others_take_result() const {
    return shape_.collective == Collective::all_reduce ? shape_.world > 1 : shape_.rank != shape_.root;
  }
  void reduce(int q) {
    std::vector<Slice> versions, results;
    for (int member = 0; member < shape_.world; ++member) {
      versions.push_back(member == shape_.rank ? input(in_buffer(q, member))
                                               : in_slot(q, member, shape_.rank));
    }
    if (others_take_result()) results.push_back(in_slot(q, shape_.rank, shape_.rank));
    if (takes_result()) results.push_back(output(in_buffer(q, shape_.rank)));
    lane_.reduce(versions, results, true);
  }
  void copy_out(int q) {
    if (!takes_result()) return;
    for (int owner = 0; owner < shape_.world; ++owner) {
      if (owner != shape_.rank) lane_.copy(in_slot(q, owner, owner), output(in_buffer(q, owner)));
    }
  }

  const Shape& shape_;
  Members members_;
  ProgramBuilder builder_;
  LaneBuilder lane_;
  int slots_;
  std::uint64_t stride_;  ///< Elements between the parts of a slot.
  int blocks_ = 0;
  std::vector<std::uint64_t> begins_;  ///< By block.
  std::vector<Blocks> parts_;          ///< By block, relative to its begin.
};

}  // namespace

bool fits_two_shot(const Shape& shape) {
  return shape.staging >= kSlots * static_cast<std::uint64_t>(shape.world);
}

Program staged_two_shot(const Shape& shape) { return TwoShot(shape).build(); }

}  // namespace lockstep::internal
