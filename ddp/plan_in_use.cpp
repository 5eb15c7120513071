#include "ddp/plan_in_use.hpp"

#include <utility>

namespace lockstep::internal {

void PlanInUse::derive(MarkCounts marks, bool static_graph, std::uint64_t number) {
  BucketPlan next = without_frozen(layout, frozen);
  auto next_places = places_of(next, frozen.size());
  ReadyTracker next_tracker(next, frozen.size());
  if (marks == MarkCounts::kept) next_tracker.adopt(tracker);
  hash = hash_of(next);  // From here on nothing fails.
  travels = std::move(next);
  places = std::move(next_places);
  tracker.become(std::move(next_tracker));
  if (marks == MarkCounts::kept) return;
  learning = static_graph;
  learns_in = learning ? number : 0;
  restart();
}

void PlanInUse::grow(const BucketPlan& more, std::size_t parameters) {
  frozen.resize(parameters);
  layout.buckets.insert(layout.buckets.begin(), more.buckets.begin(), more.buckets.end());
}

void PlanInUse::restart() noexcept {
  order.restart();
  learning ? tracker.learn() : tracker.reset();
}

}  // namespace lockstep::internal
