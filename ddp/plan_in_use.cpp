#include "ddp/plan_in_use.hpp"

#include <utility>

namespace lockstep::internal {

void PlanInUse::derive(MarkCounts marks, bool static_graph, std::uint64_t number) {
  travels = without_frozen(layout, frozen);
  hash = hash_of(travels);
  places = places_of(travels, frozen.size());
  const auto before = std::exchange(tracker, std::make_unique<ReadyTracker>(travels, frozen.size()));
  if (marks == MarkCounts::kept) return tracker->adopt(*before);
  learning = static_graph;
  learns_in = learning ? number : 0;
  if (learning) tracker->learn();
}

void PlanInUse::grow(const BucketPlan& more, std::size_t parameters) {
  frozen.resize(parameters);
  layout.buckets.insert(layout.buckets.begin(), more.buckets.begin(), more.buckets.end());
}

void PlanInUse::restart() noexcept {
  order.restart();
  tracker->reset();
  if (learning) tracker->learn();
}

}  // namespace lockstep::internal
