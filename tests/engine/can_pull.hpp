// Whether ranks may read each other's private memory here.
#pragma once

#include "collectives/communicator_core.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::testing {

inline bool can_pull(const Communicator& communicator) {
  return communicator.core().engine().transport()->domain()->can_pull();
}

}  // namespace lockstep::testing
