// Which ranks of a group share a host.
#pragma once

#include <vector>

#include "collectives/engine/engine_group.hpp"

namespace lockstep::internal {

/// As Shape::hosts: numbers in the order of the first ranks; empty where all are on one host.
std::vector<int> hosts_of(const EngineGroup& group);

}  // namespace lockstep::internal
