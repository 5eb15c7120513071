// Measuring the network between the hosts of a job, at its start.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "collectives/communicator_core.hpp"

namespace lockstep::internal {

/// What messages between the hosts of `world` cost, equal on all ranks, which all take part, on a
/// communicator of their own with number `id` (milliseconds, and 19 over links of 1 Gbit/s). Not known where
/// there is nothing to find out: one host, too many ranks for predictions, or the tuning file says it.
Result<Network> measure_network(const std::shared_ptr<World>& world, std::uint64_t id,
                                std::chrono::milliseconds timeout);

}  // namespace lockstep::internal
