// all_reduce "fused", registered: rank r reduces part r of all inputs and writes the result to all outputs,
// in one pass.
//
// Synchronisations: 2.
// Bytes touched per rank: 2 times the message (one load, one store), the least possible: every input must
// be read and every output written.
// Bits: rank order, one rounding. In place too: a part is read and written by one rank only.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/domain/domain.hpp"

namespace lockstep::internal {

Program all_reduce_fused(const Shape& shape) {
  return program_on_buffers(kEverybody, [&](LaneBuilder& lane) {
    const Members members(shape);
    const Range part = aligned_parts(shape.count, shape.world)[shape.rank];
    lane.reduce(members.all_inputs(part), members.all_outputs(part), true);
  });
}

}  // namespace lockstep::internal
