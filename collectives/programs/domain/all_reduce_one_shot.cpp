// all_reduce "one_shot", staged: everybody copies its input to its staging area and tells; everybody
// reduces all copies itself.
//
// Synchronisations: 1, the fewest possible, so the best for small messages.
// Bytes touched per rank: world + 3 times the message.
// Bits: rank order, one rounding. No acknowledgement is needed before the staging memory is used again: see
// domain.hpp.
// R. L. Graham, G. Shipman: MPI support for multi-core architectures: optimized shared memory collectives,
// 2008.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/domain/domain.hpp"

namespace lockstep::internal {

bool fits_one_shot(const Shape& shape) { return shape.count <= shape.staging; }

Program all_reduce_one_shot(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder lane = builder.lane();
  const Members members(shape);
  const Range whole{0, shape.count};
  lane.copy(input(whole), members.staging_of(shape.rank, whole));
  lane.publish();
  lane.await_all();
  const Slice result = output(whole);
  lane.reduce(members.all_staging(whole), {&result, 1}, true);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
