// Pulled: a registered program on private buffers, where the kernel lets the ranks read each other's memory.
#pragma once

#include "lockstep/types.hpp"

namespace lockstep::internal {

/// Collectives whose registered programs do nothing to members' memory but copy from their inputs, which
/// reading alone can do.
constexpr bool only_pulls(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::scatter ||
         collective == Collective::all_to_all;
}

}  // namespace lockstep::internal
