// barrier "flags": every rank raises its flag and waits for all others.
//
// Synchronisations: 1; one store and world - 1 loads per rank.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {

Program barrier_flags(const Shape&) {
  ProgramBuilder builder;
  LaneBuilder lane = builder.lane();
  lane.publish();
  lane.await_all();
  return std::move(builder).build();
}

}  // namespace lockstep::internal
