// Which gradients of this step are complete, and which buckets are full. Lock-free; knows nothing of
// communication.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// A parameter goes through claim() and then complete(), both from one thread; different parameters from any
/// threads. What a thread wrote before complete() is visible to whoever sees the bucket full. No allocation
/// after construction.
class ReadyTracker {
 public:
  explicit ReadyTracker(const BucketPlan& plan);

  /// Takes parameter i for this step; false when it is taken already.
  bool claim(std::size_t i) noexcept { return !claimed_[i].exchange(true, std::memory_order_relaxed); }

  /// Counts a claimed parameter; true when its bucket became full.
  bool complete(std::size_t i) noexcept {
    return buckets_[bucket_of_[i]].missing.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  bool full(std::size_t bucket) const noexcept {
    return buckets_[bucket].missing.load(std::memory_order_acquire) == 0;
  }

  /// Parameters not claimed in this step, ascending.
  std::vector<std::size_t> unclaimed() const;

  /// Begins the next step. No other thread may be between claim() and complete().
  void reset() noexcept;

 private:
  /// Threads count down different buckets without sharing a cache line.
  struct alignas(64) Bucket {
    std::atomic<std::uint32_t> missing{0};
    std::uint32_t size = 0;
  };
  std::vector<std::atomic<bool>> claimed_;
  std::vector<std::uint32_t> bucket_of_;
  std::vector<Bucket> buckets_;
};

}  // namespace lockstep::internal
