#include "ddp/ready_tracker.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::internal {

ReadyTracker::ReadyTracker(const BucketPlan& plan, std::size_t parameters)
    : marks_(parameters),
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

void ReadyTracker::close() noexcept {
  for (std::atomic<std::uint32_t>& word : marks_) word.fetch_or(kClosed, std::memory_order_acq_rel);
}

std::vector<std::size_t> ReadyTracker::unmarked() const {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    if (left(i) > 0) indices.push_back(i);
  }
  return indices;
}

bool ReadyTracker::settled() noexcept {
  std::fill(missing_.begin(), missing_.end(), 0u);
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    if (left(i) == 0) continue;
    for (std::uint32_t b = buckets_of_[i].first; b < buckets_of_[i].end; ++b) ++missing_[b];
  }
  return std::equal(missing_.begin(), missing_.end(), buckets_.begin(), [](std::uint32_t n, const Bucket& b) {
    return b.missing.load(std::memory_order_acquire) == n;
  });
}

void ReadyTracker::open(bool any_number) noexcept {
  for (Bucket& bucket : buckets_) bucket.missing.store(bucket.size, std::memory_order_relaxed);
  // Marks last: who marks early for the next step finds the countdown in place.
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    const std::uint32_t count = any_number ? kAnyNumber : expected_[i];
    marks_[i].store(expected_[i] == 0 ? 0 : kExpected | count, std::memory_order_release);
  }
}

void ReadyTracker::become(ReadyTracker next) noexcept {
  if (marks_.size() != next.marks_.size()) marks_ = std::move(next.marks_);
  expected_ = std::move(next.expected_);
  buckets_of_ = std::move(next.buckets_of_);
  buckets_ = std::move(next.buckets_);
  missing_ = std::move(next.missing_);
}

void ReadyTracker::adopt() noexcept {
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    if (expected_[i] > 0) expected_[i] = kAnyNumber - left(i);
  }
  count_expected();
}

void ReadyTracker::adopt(const ReadyTracker& other) {
  expected_ = other.expected_;
  count_expected();
}

}  // namespace lockstep::internal
