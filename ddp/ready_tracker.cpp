#include "ddp/ready_tracker.hpp"

#include <algorithm>

namespace lockstep::internal {

ReadyTracker::ReadyTracker(const BucketPlan& plan, std::size_t parameters)
    : left_(parameters),
      expected_(parameters),
      buckets_of_(parameters),
      buckets_(plan.buckets.size()),
      missing_(plan.buckets.size()) {
  for (std::uint32_t b = 0; b < buckets_.size(); ++b) {
    for (const GradientPart& part : plan.buckets[b].parts) {
      Range& range = buckets_of_[part.parameter];
      if (range.end == 0) range.first = b;
      range.end = b + 1;
      expected_[part.parameter] = 1;
    }
  }
  count_expected();
  reset();
}

void ReadyTracker::count_expected() noexcept {
  for (Bucket& bucket : buckets_) bucket.size = 0;
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    if (expected_[i] == 0) continue;
    for (std::uint32_t b = buckets_of_[i].first; b < buckets_of_[i].end; ++b) ++buckets_[b].size;
  }
}

std::vector<std::size_t> ReadyTracker::unmarked() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < left_.size(); ++i) {
    if (left_[i].load(std::memory_order_relaxed) > 0) indices.push_back(i);
  }
  return indices;
}

bool ReadyTracker::settled() noexcept {
  std::fill(missing_.begin(), missing_.end(), 0u);
  for (std::size_t i = 0; i < left_.size(); ++i) {
    if (left_[i].load(std::memory_order_relaxed) <= 0) continue;
    for (std::uint32_t b = buckets_of_[i].first; b < buckets_of_[i].end; ++b) ++missing_[b];
  }
  return std::equal(missing_.begin(), missing_.end(), buckets_.begin(), [](std::uint32_t n, const Bucket& b) {
    return b.missing.load(std::memory_order_acquire) == n;
  });
}

void ReadyTracker::reset() noexcept {
  for (Bucket& bucket : buckets_) bucket.missing.store(bucket.size, std::memory_order_relaxed);
  // Marks last: who marks early for the next step finds the countdown in place.
  for (std::size_t i = 0; i < left_.size(); ++i) left_[i].store(expected_[i], std::memory_order_release);
}

void ReadyTracker::learn() noexcept {
  for (std::size_t i = 0; i < left_.size(); ++i) {
    if (expected_[i] > 0) left_[i].store(kAnyNumber, std::memory_order_relaxed);
  }
}

void ReadyTracker::adopt() noexcept {
  for (std::size_t i = 0; i < left_.size(); ++i) {
    if (expected_[i] > 0) expected_[i] = kAnyNumber - left_[i].load(std::memory_order_relaxed);
  }
  count_expected();
}

void ReadyTracker::adopt(const ReadyTracker& other) {
  expected_ = other.expected_;
  count_expected();
}

}  // namespace lockstep::internal
