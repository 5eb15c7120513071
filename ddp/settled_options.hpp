// What is left to the reducer in its options, decided.
#pragma once

#include "lockstep/communicator.hpp"
#include "lockstep/ddp/reducer_options.hpp"

namespace lockstep::internal {

/// `options` with everything decided that says nothing. Equal on all ranks whose options are. Local.
ReducerOptions settled(Communicator& communicator, ReducerOptions options);

}  // namespace lockstep::internal
