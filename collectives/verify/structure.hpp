// What can be said about programs without running them.
#pragma once

#include <string>

#include "collectives/verify/verify.hpp"

namespace lockstep::internal {

/// Empty, or the first finding: a slice outside its space or of memory that the medium does not give, a step
/// kind that the medium does not know, lengths that differ within a step, a peer or lane that does not exist,
/// two lanes for one peer and direction, phases that do not count up or differ between ranks, a finish where
/// nothing is reduced.
std::string check_structure(const ProgramSet& set);

/// "rank 1 lane 0 step 2 (send input[0,4) to 3)"
std::string name_step(const ProgramSet& set, int rank, std::size_t lane, std::size_t step);

}  // namespace lockstep::internal
