// all_reduce "alone", registered: rank 0 reduces all inputs and writes the result to all outputs, in one
// pass, while the others wait. For ranks that do not work side by side: processes that take turns on one
// device, where every rank that has work costs a turn (about 145 us on an H100).
//
// Synchronisations: 2. All await phase 1, as in every program on registered memory; of phase 2 rank 0's is
// enough.
// Bytes touched by all ranks together: those of "fused". Bits: those of "fused".
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/domain/domain.hpp"

namespace lockstep::internal {

Program all_reduce_alone(const Shape& shape) {
  const Members members(shape);
  const Range whole{0, shape.count};
  ProgramBuilder builder;
  LaneBuilder lane = builder.lane();
  lane.publish();
  lane.await_all();
  if (shape.rank == 0) lane.reduce(members.all_inputs(whole), members.all_outputs(whole), true);
  lane.publish();
  if (shape.rank != 0) lane.await(0, 2);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
