// StepClock: the times of one step, and what they add up to.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "lib/base/env.hpp"
#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/statistics.hpp"

namespace lockstep::internal {

/// When the parts of a step were, by any one clock.
struct StepTimes {
  struct Bucket {
    Nanos started = 0, done = 0;
  };
  Nanos began = 0;
  Nanos first_mark = 0;  ///< 0: none.
  Nanos entered = 0;     ///< wait()
  Nanos ended = 0;
  bool left_buckets = false;  ///< Some were on their way when it ended.
  Nanos waited_later = 0;     ///< For these.
  std::vector<Bucket> buckets;
};

/// What they add up to, for a step of `plan` on this rank; `computed` of all ranks.
StepStatistics statistics_of(const StepTimes& times, const BucketPlan& plan, std::uint64_t step, int rank,
                             const std::vector<Nanos>& computed);

class StepClock {
 public:
  StepClock() { times_.began = real_env().now(); }

  /// Before the first step of a plan.
  void set_buckets(std::size_t count) { times_.buckets.assign(count, {}); }

  /// Any thread. Only the first of a step looks at the clock.
  void mark() noexcept {
    if (first_mark_.load(std::memory_order_relaxed) != 0) return;
    Nanos none = 0;
    first_mark_.compare_exchange_strong(none, real_env().now(), std::memory_order_relaxed);
  }
  void bucket_started(std::size_t index) noexcept { times_.buckets[index].started = real_env().now(); }
  /// By whichever thread finds it done; before the carrier's finish() returns.
  void bucket_done(std::size_t index) noexcept { times_.buckets[index].done = real_env().now(); }
  void wait_entered() noexcept { times_.entered = real_env().now(); }
  /// wait() returned and left buckets on their way; the next step begins.
  void wait_left() noexcept {
    times_.ended = real_env().now();
    times_.left_buckets = true;
  }
  /// Then this was waited for them.
  void waited_later(Nanos time) noexcept { times_.waited_later += time; }

  /// What this rank needed from the step's begin to wait().
  Nanos computed() const noexcept { return times_.entered - times_.began; }

  /// The step ended well; the next begins, if it has not in wait_left().
  StepStatistics end_step(const BucketPlan& plan, std::uint64_t step, int rank,
                          const std::vector<Nanos>& computed);
  /// The step failed; the next begins.
  void restart() noexcept;

 private:
  StepTimes times_;
  std::atomic<Nanos> first_mark_{0};
};

/// Reducer::report.
std::string report_of(const StepStatistics& statistics, int rank);

}  // namespace lockstep::internal
