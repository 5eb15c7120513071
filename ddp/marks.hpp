// What marks mean to every kind of reducer: when they are refused, and what is known once all of a step came.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>

#include "ddp/plan_in_use.hpp"
#include "ddp/ready_tracker.hpp"
#include "ddp/step_state.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// Throws Error(invalid_argument) unless a reducer of so many parameters has this one.
void require_index(const char* call, std::size_t parameter, std::size_t parameters);

/// Throws Error(not_supported) in a child that was forked from the trainer: it has neither its connections
/// nor its threads. `owner`: "Reducer" ...
void require_own_process(const char* call, const std::string& owner);

/// Throws Error(invalid_argument) of mark_unused(i) unless `options` let it be called.
void require_finds_unused(const ReducerOptions& options, std::size_t i);

/// Counts a mark of parameter i, which has a gradient or is unused. True when it is the last that is awaited.
/// One too many fails the step and throws Error(invalid_argument).
bool count_mark(StepState& step, ReadyTracker& tracker, const char* call, std::size_t i, bool has_gradient,
                std::span<const Parameter> parameters, int rank);

/// Throws Error(invalid_argument) of a mark that came too late to count.
[[noreturn]] void refuse_late_mark(const char* call, std::size_t i, std::span<const Parameter> parameters,
                                   int rank);

/// wait() begins, or a step without data: no mark counts any more, and each that did has had its effect, or
/// one has no memory for it. Until the step restarts all but the marks' own words is wait()'s alone, so that
/// it may change the plan. `mutex` is that of the reducer, under which full buckets start.
void end_marks(StepState& step, PlanInUse& plan, std::mutex& mutex) noexcept;

/// After end_marks(). Throws std::bad_alloc when a mark had no memory for its effect. What should have been
/// marked is the step's trouble; `contribute(i)` for each gradient that takes part although its marks did not
/// tell. A step that was learning how many marks there are has learned it.
void settle_marks(StepState& step, PlanInUse& plan, bool find_unused,
                  const std::function<void(std::size_t)>& contribute);

/// Why the peers of a rank need not wait for the rest of its step.
std::string reason_of_abandoned(const StepState& step, std::span<const Parameter> parameters,
                                const std::string& owner, int rank);

}  // namespace lockstep::internal
