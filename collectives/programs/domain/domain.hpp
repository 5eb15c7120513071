// What the programs in a domain (shared memory) have in common.
//
// Every domain program ends, on every rank, only after that rank knows that all members have entered the
// call, and so have left the one before. A rank that starts its next call may therefore overwrite the half
// of its staging area that it used two calls ago: nobody reads it any more, whatever programs came between.
// That is why two alternating halves need no acknowledgement, and why even a call of zero elements
// publishes one phase and awaits it from all.
#pragma once

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

/// Memory as one rank names it: its own as kSelf, the others' by member.
class Members {
 public:
  explicit Members(const Shape& shape) : rank_(shape.rank), world_(shape.world) {}
  Slice input_of(int member, Range range) const { return of(Space::input, member, range); }
  Slice output_of(int member, Range range) const { return of(Space::output, member, range); }
  Slice staging_of(int member, Range range) const { return of(Space::staging, member, range); }
  /// One slice per member, in rank order.
  std::vector<Slice> all_inputs(Range range) const { return of_all(Space::input, range); }
  std::vector<Slice> all_outputs(Range range) const { return of_all(Space::output, range); }
  std::vector<Slice> all_staging(Range range) const { return of_all(Space::staging, range); }

 private:
  Slice of(Space space, int member, Range range) const {
    return {space, member == rank_ ? kSelf : member, range.begin, range.count};
  }
  std::vector<Slice> of_all(Space space, Range range) const {
    std::vector<Slice> slices;
    for (int member = 0; member < world_; ++member) slices.push_back(of(space, member, range));
    return slices;
  }
  int rank_, world_;
};

/// As Blocks::parts, but long messages are cut between multiples of kAlignment elements, so that two ranks do
/// not write one cache line.
Blocks aligned_parts(std::uint64_t count, int parts);
/// Elements of the smallest type (1 byte) in a cache line.
inline constexpr std::uint64_t kAlignment = 64;
/// Elements between `parts` parts of a room of so many elements: whole cache lines where there is room for
/// some.
std::uint64_t aligned_stride(std::uint64_t room, std::uint64_t parts);
/// Elements between the parts of a slot, where the staging half holds `slots` of one part for each rank.
std::uint64_t part_stride(const Shape& shape, int slots);

/// Two segments: each block costs a synchronisation, which ranks that share cores pay with a turn of the
/// scheduler, and up to here a longer block costs less than another one.
inline std::uint64_t longest_two_shot_block(const Shape& shape) { return 2 * shape.segment; }

/// Whom a phase is awaited from, where it is not one rank.
inline constexpr int kEverybody = kSelf, kNobody = kSelf - 1;
inline int everybody_at_root(const Shape& shape) { return shape.rank == shape.root ? kEverybody : kNobody; }

/// A program on members' buffers, registered or pulled. Phase 1 says "my buffers are ready", and all await it
/// from all: the engine uses it to tell where the buffers are. Phase 2 says "I am done with everybody's
/// buffers", and is awaited from the `users` of this rank's, since it may not leave before they are done.
template <typename Work>
Program program_on_buffers(int users, Work work) {
  ProgramBuilder builder;
  LaneBuilder lane = builder.lane();
  lane.publish();
  lane.await_all();
  work(lane);
  lane.publish();
  if (users != kNobody) lane.await(users, 2);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
