// Time, randomness and the environment may be asked for in few places only: a simulated run must be a
// function of its seed, and every variable must go through the registry.
#pragma once

#include <string>
#include <vector>

#include "tests/lint/source_tree.hpp"

namespace lockstep::internal::lint {

/// One message for every use of a clock, a sleep, a source of randomness or the environment outside its
/// place.
std::vector<std::string> ambient_findings(const std::vector<SourceFile>& files);

}  // namespace lockstep::internal::lint
