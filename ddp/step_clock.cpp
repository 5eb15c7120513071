#include "ddp/step_clock.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ddp/bucket_plan.hpp"

namespace lockstep::internal {

namespace {

/// Time after `from` in which at least one bucket was on its way. Buckets started in order of their index.
Nanos in_flight_after(Nanos from, const StepTimes& times) {
  Nanos total = 0;
  Nanos covered = from;
  for (const StepTimes::Bucket& bucket : times.buckets) {
    const Nanos start = std::max(bucket.started, covered);
    if (bucket.done <= start) continue;
    total += bucket.done - start;
    covered = bucket.done;
  }
  return total;
}

}  // namespace

StepStatistics statistics_of(const StepTimes& times, const BucketPlan& plan, std::uint64_t step, int rank,
                             const std::vector<Nanos>& computed) {
  using std::chrono::nanoseconds;
  StepStatistics result;
  result.step = step;
  result.buckets = static_cast<int>(plan.buckets.size());
  result.duration = nanoseconds(times.ended - times.began);
  if (times.first_mark != 0) result.backward = nanoseconds(times.entered - times.first_mark);
  Nanos last_done = times.ended;
  for (std::size_t b = 0; b < times.buckets.size(); ++b) {
    const auto [started, done] = times.buckets[b];
    last_done = std::max(last_done, done);
    const std::size_t bytes = gradient_bytes(plan.buckets[b]);
    result.bytes += bytes;
    result.timeline.push_back({bytes, nanoseconds(started - times.began), nanoseconds(done - times.began)});
  }
  if (!times.buckets.empty())
    result.first_ready_to_done = nanoseconds(last_done - times.buckets.front().started);
  result.waited = nanoseconds(times.ended - times.entered + times.waited_later);
  result.communication = nanoseconds(in_flight_after(times.began, times));
  result.exposed = nanoseconds(in_flight_after(times.entered, times));
  if (times.left_buckets) result.exposed = std::min(result.exposed, result.waited);
  const auto latest = std::max_element(computed.begin(), computed.end());
  result.latest_rank = static_cast<int>(latest - computed.begin());
  result.waited_for_latest =
      std::min(nanoseconds(*latest - computed[static_cast<std::size_t>(rank)]), result.waited);
  return result;
}

StepStatistics StepClock::end_step(const BucketPlan& plan, std::uint64_t step, int rank,
                                   const std::vector<Nanos>& computed) {
  if (!times_.left_buckets) times_.ended = real_env().now();
  times_.first_mark = first_mark_.load(std::memory_order_relaxed);
  StepStatistics result = statistics_of(times_, plan, step, rank, computed);
  restart();
  return result;
}

void StepClock::restart() noexcept {
  times_.began = times_.left_buckets ? times_.ended : real_env().now();
  times_.left_buckets = false;
  times_.waited_later = 0;
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
