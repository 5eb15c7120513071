#include "ddp/ready_tracker.hpp"

namespace lockstep::internal {
namespace {

std::size_t parameters_of(const BucketPlan& plan) {
  std::size_t count = 0;
  for (const auto& bucket : plan.buckets) count += bucket.parts.size();
  return count;
}

}  // namespace

ReadyTracker::ReadyTracker(const BucketPlan& plan)
    : claimed_(parameters_of(plan)), bucket_of_(claimed_.size()), buckets_(plan.buckets.size()) {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    buckets_[b].size = static_cast<std::uint32_t>(plan.buckets[b].parts.size());
    buckets_[b].missing = buckets_[b].size;
    for (const GradientPart& part : plan.buckets[b].parts)
      bucket_of_[part.parameter] = static_cast<std::uint32_t>(b);
  }
}

std::vector<std::size_t> ReadyTracker::unclaimed() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < claimed_.size(); ++i) {
    if (!claimed_[i].load(std::memory_order_relaxed)) indices.push_back(i);
  }
  return indices;
}

void ReadyTracker::reset() noexcept {
  for (Bucket& bucket : buckets_) bucket.missing.store(bucket.size, std::memory_order_relaxed);
  // Claims last: who claims early for the next step finds the countdown in place.
  for (auto& claimed : claimed_) claimed.store(false, std::memory_order_release);
}

}  // namespace lockstep::internal
