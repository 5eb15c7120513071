// Which gradients of this step are complete, and which buckets are full. Lock-free; knows nothing of
// communication.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// A parameter goes through mark() as often as is expected of it, and after the last through complete(), once
/// for each bucket that it has a part in; different parameters from any threads. What a thread wrote before
/// complete() is visible to whoever sees the bucket full. No allocation after construction.
class ReadyTracker {
 public:
  enum class Mark : std::uint8_t {
    awaited,  ///< More marks of this parameter are to come.
    last,     ///< The caller calls complete() for each part.
    surplus,  ///< All had come before.
  };

  /// One mark is expected of every parameter in `plan`, none of those of 0 to `parameters` - 1 that it lacks.
  ReadyTracker(const BucketPlan& plan, std::size_t parameters);

  Mark mark(std::size_t i) noexcept {
    const std::int32_t left = left_[i].fetch_sub(1, std::memory_order_acq_rel);
    if (left == 1) return Mark::last;
    if (left > 1) return Mark::awaited;
    left_[i].fetch_add(1, std::memory_order_relaxed);
    return Mark::surplus;
  }

  /// Counts a part, in `bucket`, of a parameter whose last mark came; true when the bucket became full.
  bool complete(std::size_t bucket) noexcept {
    return buckets_[bucket].missing.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }

  /// Whether steps mark parameter i at all.
  bool expects(std::size_t i) const noexcept { return expected_[i] > 0; }

  bool full(std::size_t bucket) const noexcept {
    return buckets_[bucket].missing.load(std::memory_order_acquire) == 0;
  }

  /// Parameters that lack marks, ascending.
  std::vector<std::size_t> unmarked() const;
  /// No thread is between the last mark() of a parameter and the end of complete(). For one thread at a time.
  bool settled() noexcept;

  /// Begins the next step. No other thread may be in a call.
  void reset() noexcept;

  // ---- a step that learns how many marks there are
  /// The step to come takes any number of marks, all of them Mark::awaited.
  void learn() noexcept;
  /// From the next reset() on, as many marks are expected as this step has seen.
  void adopt() noexcept;
  /// From the next reset() on, as many marks are expected as `other` expects, of the same parameters.
  void adopt(const ReadyTracker& other);

 private:
  static constexpr std::int32_t kAnyNumber = 1 << 30;
  struct Range {
    std::uint32_t first = 0, end = 0;
  };
  /// Threads count down different buckets without sharing a cache line.
  struct alignas(64) Bucket {
    std::atomic<std::uint32_t> missing{0};
    std::uint32_t size = 0;  // Parameters of which marks are expected.
  };
  void count_expected() noexcept;

  std::vector<std::atomic<std::int32_t>> left_;  // Marks to come.
  std::vector<std::int32_t> expected_;
  std::vector<Range> buckets_of_;
  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> missing_;  // For settled(), by bucket.
};

}  // namespace lockstep::internal
