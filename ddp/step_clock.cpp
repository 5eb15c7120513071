#include "ddp/step_clock.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace lockstep::internal {

/// Time after `from` in which at least one bucket was on its way. Buckets started in order of their index.
Nanos StepClock::in_flight_after(Nanos from) const {
  Nanos total = 0;
  Nanos covered = from;
  for (const Times& bucket : times_) {
    const Nanos start = std::max(bucket.started, covered);
    if (bucket.done <= start) continue;
    total += bucket.done - start;
    covered = bucket.done;
  }
  return total;
}

StepStatistics StepClock::end_step(int rank, const std::vector<Nanos>& computed) {
  using std::chrono::nanoseconds;
  const Nanos now = left_ != 0 ? left_ : real_env().now();
  Nanos last_done = now;
  for (const Times& bucket : times_) last_done = std::max(last_done, bucket.done);
  StepStatistics result;
  result.duration = nanoseconds(now - began_);
  const Nanos first_mark = first_mark_.load(std::memory_order_relaxed);
  if (first_mark != 0) result.backward = nanoseconds(entered_ - first_mark);
  if (!times_.empty()) result.first_ready_to_done = nanoseconds(last_done - times_.front().started);
  result.waited = nanoseconds(now - entered_ + later_);
  result.communication = nanoseconds(in_flight_after(began_));
  result.exposed = nanoseconds(in_flight_after(entered_));
  if (left_ != 0) result.exposed = std::min(result.exposed, result.waited);
  const auto latest = std::max_element(computed.begin(), computed.end());
  result.latest_rank = static_cast<int>(latest - computed.begin());
  result.waited_for_latest =
      std::min(nanoseconds(*latest - computed[static_cast<std::size_t>(rank)]), result.waited);
  for (const Times& bucket : times_) {
    result.timeline.push_back({0, nanoseconds(bucket.started - began_), nanoseconds(bucket.done - began_)});
  }
  restart();
  return result;
}

void StepClock::restart() noexcept {
  began_ = left_ != 0 ? left_ : real_env().now();
  left_ = later_ = 0;
  first_mark_.store(0, std::memory_order_relaxed);
}

namespace {

std::string milliseconds(std::chrono::nanoseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f ms", static_cast<double>(time.count()) / 1e6);
  return text;
}

}  // namespace

std::string report_of(const StepStatistics& s, int rank) {
  if (s.step == 0) return "no step has ended yet";
  std::string text = "step " + std::to_string(s.step) + ": " + milliseconds(s.duration) + "; communication " +
                     milliseconds(s.communication);
  if (s.communication.count() > 0) {
    const double exposed =
        static_cast<double>(s.exposed.count()) / static_cast<double>(s.communication.count());
    text += ", " + std::to_string(std::lround(100 * (1 - exposed))) + " % hidden";
  }
  if (s.latest_rank == rank) return text + "; waited for no rank";
  return text + "; waited " + milliseconds(s.waited_for_latest) + " for rank " +
         std::to_string(s.latest_rank);
}

}  // namespace lockstep::internal
