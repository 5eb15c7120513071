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
///
/// All that a mark may find lies in one word of its parameter: that a step takes none any more it learns by
/// the very operation that would count it. So none falls between two steps, and a mark that did not count has
/// touched nothing else.
class ReadyTracker {
 public:
  enum class Mark : std::uint8_t {
    awaited,     ///< More marks of this parameter are to come.
    last,        ///< The caller calls complete() for each part.
    surplus,     ///< All had come before.
    unexpected,  ///< Steps do not mark this parameter.
    late,        ///< After close().
  };

  ReadyTracker() = default;
  /// One mark is expected of every parameter in `plan`, none of those of 0 to `parameters` - 1 that it lacks.
  ReadyTracker(const BucketPlan& plan, std::size_t parameters);

  /// Of a parameter that has a gradient, or is unused.
  Mark mark(std::size_t i, bool has_gradient) noexcept {
    std::uint32_t word = marks_[i].load(std::memory_order_relaxed);
    do {
      if ((word & kClosed) != 0) return Mark::late;
      if ((word & kLeft) == 0) return (word & kExpected) != 0 ? Mark::surplus : Mark::unexpected;
    } while (!marks_[i].compare_exchange_weak(word, (word - 1) | (has_gradient ? kGradient : 0),
                                              std::memory_order_acq_rel, std::memory_order_relaxed));
    return (word & kLeft) == 1 ? Mark::last : Mark::awaited;
  }
  /// A mark of parameter i that counted came with a gradient. After the last one, or after settled().
  bool has_gradient(std::size_t i) const noexcept {
    return (marks_[i].load(std::memory_order_acquire) & kGradient) != 0;
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

  // ---- for one thread at a time
  /// The step takes no marks any more.
  void close() noexcept;
  /// Parameters that lack marks, ascending.
  std::vector<std::size_t> unmarked() const;
  /// No thread is between the last mark() of a parameter and the end of complete().
  bool settled() noexcept;

  /// Begins the next step. Nobody is in a call, but for mark() in a step that is closed.
  void reset() noexcept { open(false); }
  /// From the next reset() on it is as `next`. What mark() looks at stays where it is while there are as many
  /// parameters.
  void become(ReadyTracker next) noexcept;

  // ---- a step that learns how many marks there are
  /// As reset(): a step that takes any number of marks, all of them Mark::awaited.
  void learn() noexcept { open(true); }
  /// From the next reset() on, as many marks are expected as this step has seen.
  void adopt() noexcept;
  /// From the next reset() on, as many marks are expected as `other` expects, of the same parameters.
  void adopt(const ReadyTracker& other);

 private:
  static constexpr std::uint32_t kClosed = 1u << 31, kGradient = 1u << 30, kExpected = 1u << 29;
  static constexpr std::uint32_t kLeft = kExpected - 1;  // Marks to come.
  static constexpr std::uint32_t kAnyNumber = 1u << 28;
  struct Range {
    std::uint32_t first = 0, end = 0;
  };
  /// Threads count down different buckets without sharing a cache line.
  struct alignas(64) Bucket {
    std::atomic<std::uint32_t> missing{0};
    std::uint32_t size = 0;  // Parameters of which marks are expected.
  };
  void count_expected() noexcept;
  void open(bool any_number) noexcept;
  std::uint32_t left(std::size_t i) const noexcept {
    return marks_[i].load(std::memory_order_relaxed) & kLeft;
  }

  std::vector<std::atomic<std::uint32_t>> marks_;
  std::vector<std::uint32_t> expected_;
  std::vector<Range> buckets_of_;
  std::vector<Bucket> buckets_;
  std::vector<std::uint32_t> missing_;  // For settled(), by bucket.
};

}  // namespace lockstep::internal
