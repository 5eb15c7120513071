// PlanInUse: the buckets in which the gradients of a reducer travel, and what counts the marks of its steps.
// The same for gradients on a host and on a device: where the buckets lie is not known here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/ready_order.hpp"
#include "ddp/ready_tracker.hpp"
#include "ddp/telling_peers.hpp"

namespace lockstep::internal {

/// Of a static graph, when its plan changes: how many marks a step has is counted anew, or still holds
/// because the gradients are the same.
enum class MarkCounts : std::uint8_t { anew, kept };

/// Changes between steps, while nothing is on its way. In a step any thread uses `tracker` and `order`.
struct PlanInUse {
  BucketPlan layout;                           // Of all parameters: the memory is made from it.
  BucketPlan travels;                          // `layout` without frozen parameters. Stays where it is.
  std::uint64_t hash = 0;                      // Of `travels`.
  std::vector<bool> frozen;                    // By parameter.
  std::vector<std::vector<PartPlace>> places;  // In `travels`, of each parameter.
  ReadyTracker tracker;
  ReadyOrder order;             // Observed until the buckets were laid out anew.
  bool learning = false;        // Static graph, until the marks of a step were counted:
  std::uint64_t learns_in = 0;  // that step, the same on all ranks that have data.
  std::optional<Error>
      broken;  // Why a change failed: no step begins any more, and nothing looks at the plan.

  const std::vector<BucketPlan::Bucket>& buckets() const noexcept { return travels.buckets; }

  /// Throws why a change has failed. What depends on the plan may be of the one before or of the next.
  void require_whole() const {
    if (broken) throw *broken;
  }

  /// `layout` or `frozen` changed: all else follows. A static graph counts its marks `anew` in step `number`;
  /// counts that are `kept` hold from the next restart() on.
  void derive(MarkCounts marks, bool static_graph, std::uint64_t number);
  /// The layout gets `more`, of parameters that join, in front: backward reaches first what was registered
  /// last. derive() is to follow.
  void grow(const BucketPlan& more, std::size_t parameters);
  /// Whether the buckets are laid out anew when step `number` has ended well: a step that only counted marks
  /// saw no order.
  bool rebuilds_after(std::uint64_t number) const noexcept {
    return order.observing() && number != learns_in;
  }
  /// Between steps: the next one counts its marks from the start.
  void restart() noexcept;

  /// Runs `action`, which changes the plan and what depends on it. It can fail midway, and on this rank
  /// alone: no step begins any more, here or at the peers. `ranks` as for telling_peers().
  template <typename Ranks, typename Action>
  void change(Ranks& ranks, const std::string& where, Action action) {
    try {
      telling_peers(ranks, where, action);
    } catch (const Error& error) {
      broken = error;
      throw;
    }
  }
};

}  // namespace lockstep::internal
