// The verdict of a step, as an exception or none.
#pragma once

#include <span>
#include <string>

#include "ddp/closing_exchange.hpp"

namespace lockstep::internal {

/// After closing.exchange(). Throws, the same on every rank, unless the step is good on all of them:
/// Error(invalid_argument), or NonFiniteGradient, whose text begins with the name of the step. `missing`:
/// what this rank should have marked. Collective where a rank did not mark everything.
void require_good_step(ClosingExchange& closing, std::span<const std::size_t> missing,
                       std::span<const Parameter> parameters, const std::string& step_name);

}  // namespace lockstep::internal
