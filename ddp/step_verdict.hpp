// The end of a step, for every kind of reducer: the verdict of all ranks, as an exception or none.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ddp/closing_exchange.hpp"
#include "ddp/step_state.hpp"
#include "lib/base/env.hpp"

namespace lockstep::internal {

/// The closing exchange. Throws, the same on every rank, unless the step is good on all of them:
/// Error(invalid_argument), NonFiniteGradient, whose text begins with the name of the step, or a mismatch of
/// replicas. `plan`: a hash of the buckets. `hash_values` is called in steps that compare replicas.
/// Collective once more where a rank did not mark everything, or replicas differ.
void judge_step(ClosingExchange& closing, const StepState& step, std::uint64_t plan, Nanos computed,
                std::span<const Parameter> parameters, const ReducerOptions& options,
                const std::function<std::vector<std::uint64_t>()>& hash_values);

}  // namespace lockstep::internal
