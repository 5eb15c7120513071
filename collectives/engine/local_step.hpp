// Steps that touch memory only: copy and reduce, for links and domains alike.
#pragma once

#include <cstdint>

#include "collectives/engine/buffers.hpp"
#include "collectives/programs/program.hpp"

namespace lockstep::internal {

/// Runs a copy or reduce step on elements [first, first + count) of its slices.
void run_local_step(const Program& program, const Step& step, const Buffers& buffers, const Combine& combine,
                    std::uint64_t first, std::uint64_t count);

}  // namespace lockstep::internal
