// StepClock: the times of one step, and what they add up to.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "lib/base/env.hpp"
#include "lockstep/ddp/statistics.hpp"

namespace lockstep::internal {

class StepClock {
 public:
  StepClock() : began_(real_env().now()) {}

  /// Before the first step of a plan.
  void set_buckets(std::size_t count) { times_.assign(count, {}); }

  /// Any thread. Only the first of a step looks at the clock.
  void mark() noexcept {
    if (first_mark_.load(std::memory_order_relaxed) != 0) return;
    Nanos none = 0;
    first_mark_.compare_exchange_strong(none, real_env().now(), std::memory_order_relaxed);
  }
  void bucket_started(std::size_t index) noexcept { times_[index].started = real_env().now(); }
  /// By whichever thread finds it done; before the carrier's finish() returns.
  void bucket_done(std::size_t index) noexcept { times_[index].done = real_env().now(); }
  void wait_entered() noexcept { entered_ = real_env().now(); }
  /// wait() returned and left buckets on their way; the next step begins.
  void wait_left() noexcept { left_ = real_env().now(); }
  /// Then this was waited for them.
  void waited_later(Nanos time) noexcept { later_ += time; }

  /// What this rank needed from the step's begin to wait().
  Nanos computed() const noexcept { return entered_ - began_; }

  /// The step ended well; `computed` of all ranks. The next begins, if it has not in wait_left(). Fills all
  /// that clocks know.
  StepStatistics end_step(int rank, const std::vector<Nanos>& computed);
  /// The step failed; the next begins.
  void restart() noexcept;

 private:
  struct Times {
    Nanos started = 0, done = 0;
  };
  Nanos in_flight_after(Nanos from) const;

  Nanos began_;
  Nanos entered_ = 0;
  Nanos left_ = 0;   // When wait() left buckets on their way; 0: it left none.
  Nanos later_ = 0;  // Waited since.
  std::atomic<Nanos> first_mark_{0};
  std::vector<Times> times_;
};

/// Reducer::report.
std::string report_of(const StepStatistics& statistics, int rank);

}  // namespace lockstep::internal
