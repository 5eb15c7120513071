// all_reduce "alone", registered: rank 0 reduces all inputs and writes the result to all outputs, in one
// pass, while the others wait.
//
// Synchronisations: 2. Phase 1 is awaited by all, as in every program on registered memory; of phase 2 that
// of rank 0 is enough. Bytes touched: by rank 0 twice the message for each rank, by the others none: as many
// as "fused" in all. It gains where ranks do not work side by side: processes whose kernels take turns on one
// device, where every rank that has work costs a turn (about 145 us on an H100). Bits: rank order, one
// rounding; those of "fused".
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
