// begin_step(): do the ranks go on, and what do their gradients weigh?
#pragma once

#include <cstdint>

#include "ddp/closing_exchange.hpp"
#include "ddp/step_state.hpp"

namespace lockstep::internal {

/// Collective. False, the same on all ranks: there is no step. True: `step` knows the weight of this rank's
/// `samples`, and shadows the others where it has none.
bool open_step(StepState& step, ClosingExchange& closing, std::uint64_t samples, int rank,
               const ReducerOptions& options);

}  // namespace lockstep::internal
