// barrier "dissemination": in round k every rank tells the rank 2^k places to its right what it has heard
// so far. After ceil(log2(world)) rounds everybody has heard of everybody. Messages are empty.
//
// Before round k a rank has heard of the 2^k ranks from itself leftwards. The last round need only tell of
// the world - 2^k ranks that the receiver misses, so it may go out before all earlier rounds have come in.
//
// D. Hensgen, R. Finkel, U. Manber: Two algorithms for barrier synchronization, 1988.
#include <algorithm>

#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

Program barrier_dissemination(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  DoublingTickets heard;
  for (int distance = 1; distance < shape.world; distance *= 2) {
    const int needed = std::min(distance, shape.world - distance);
    sends.signal(wrap(shape.rank + distance, shape.world), {heard.when(needed)});
    heard.doubled(receives.expect(wrap(shape.rank - distance, shape.world)));
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
