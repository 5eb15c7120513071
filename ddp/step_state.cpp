#include "ddp/step_state.hpp"

#include <algorithm>
#include <thread>

#include "lib/net/fd.hpp"
#include "lockstep/error.hpp"

namespace lockstep::internal {

void StepState::require_marks_allowed(bool weighted) const {
  if (shadowing) {
    throw Error(ErrorCode::invalid_argument,
                "mark_ready: begin_step(0) said that this rank has no data for " + name() +
                    "; compute nothing and call wait()");
  }
  if (weighted && !opened) {
    throw Error(ErrorCode::invalid_argument,
                "mark_ready: weighted gradients need begin_step(samples) before each step, on all ranks");
  }
}

void StepState::require_ended(const char* call) const {
  if (!marked && !opened && pauses == 0) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + " was called in the midst of " + name() + "; call wait() first");
}

/// A mark that came too late to be seen here sees that no NoSync lives. A forked child has not the threads
/// that were at it.
void StepState::end_pause() noexcept {
  if (--pauses > 0) return;
  while (noting > 0 && !in_forked_child()) std::this_thread::yield();
}

void StepState::resize(std::size_t parameters) {
  has_gradient.resize(parameters);
  paused.resize(parameters);
}

void StepState::forget_gradients() {
  std::fill(has_gradient.begin(), has_gradient.end(), std::uint8_t{0});
  std::fill(paused.begin(), paused.end(), std::uint8_t{0});
}

void StepState::restart(bool averages) {
  marked = closed = false;
  trouble.clear();
  cut_short = false;
  has_gradient = paused;
  missing.clear();
  opened = shadowing = false;
  average = averages;
  factor = 1;
}

}  // namespace lockstep::internal
