// Which rank has something else than rank 0?
#pragma once

#include <cstdint>
#include <span>

#include "lockstep/communicator.hpp"

namespace lockstep::internal {

/// The lowest rank whose value is not rank 0's; -1 when all are equal. `values`: one of each rank. Pure.
int first_to_differ(std::span<const std::uint64_t> values);

/// Collective. The same, of every rank's `value`.
int first_to_differ(Communicator& communicator, std::uint64_t value);

}  // namespace lockstep::internal
