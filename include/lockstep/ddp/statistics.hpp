// StepStatistics: where the time of a step went.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

/// The last step that wait() ended with success. A step begins where the one before ended (the first: with
/// the reducer's construction) and ends when wait() returns. With ReducerOptions::overlap_forward: the last
/// whose gradients were all waited for.
struct StepStatistics {
  /// One bucket's way, in time since the step began.
  struct Bucket {
    std::size_t bytes = 0;               ///< Gradients, without gaps.
    std::chrono::nanoseconds started{};  ///< Full, as were all before it.
    std::chrono::nanoseconds done{};     ///< Summed.
  };

  std::uint64_t step = 0;               ///< Steps ended so far; 0 before the first.
  std::chrono::nanoseconds duration{};  ///< Of the whole step: data, forward, backward, wait, optimizer.
  std::chrono::nanoseconds backward{};  ///< From the first mark_ready() to wait().
  std::chrono::nanoseconds first_ready_to_done{};  ///< From the first bucket's start to the end of wait().
  /// Inside wait() and wait_gradients(): what backward and forward did not hide, and late peers.
  std::chrono::nanoseconds waited{};
  std::chrono::nanoseconds communication{};  ///< While any bucket was on its way.
  /// Of that, after wait() was called; with `overlap_forward` at most `waited`.
  std::chrono::nanoseconds exposed{};
  /// The rank that took longest to reach wait(), and how much longer than this one, by each rank's own clock;
  /// at most `waited`.
  int latest_rank = 0;
  std::chrono::nanoseconds waited_for_latest{};
  std::size_t bytes = 0;  ///< Gradient bytes reduced.
  int buckets = 0;
  std::vector<Bucket> timeline;  ///< In plan order.
};

}  // namespace lockstep
