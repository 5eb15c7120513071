// What a communicator asks of a device's queues, checked against what the device has: soft devices take any
// number and fail later.
#pragma once

#include <cstdint>
#include <deque>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// What a device and its port say that they can do.
struct DeviceLimits {
  std::uint64_t work_requests = 0;  ///< In one send queue.
  std::uint64_t shared_receives = 0;
  std::uint64_t completions = 0;
  std::uint64_t queue_pairs = 0;
  std::uint64_t message_bytes = 0;
};

struct QueueSizes {
  std::uint32_t sends = 0;     ///< Of each queue pair.
  std::uint32_t receives = 0;  ///< Of the shared receive queue.
  std::uint32_t completions = 0;
  std::uint64_t write_bytes = 0;  ///< The largest RDMA write.
};

/// The queues for a group of `size`. Error `configuration`, naming the limit, when the device has too little.
Result<QueueSizes> queue_sizes(int size, const DeviceLimits& device);

/// LOCKSTEP_VERBS_TIMEOUT, 1 to 31: the device has five bits for it, and 0 would mean that a lost packet is
/// never sent again.
std::uint8_t acknowledgement_timeout();

/// Which send requests are under way on one queue pair, and which of them ask for a completion.
class SendBudget {
 public:
  explicit SendBudget(std::uint32_t depth) : depth_(depth) {}
  bool room() const { return under_way_ < depth_; }
  /// One more is posted (there was room). Whether it is to ask for a completion: when its poster needs one,
  /// when the last that did is kSignalEvery ago, and when it is the last that fits.
  bool post(bool wanted);
  /// A completion came: it retires all requests up to the one that asked for it. How many.
  std::uint32_t complete();
  std::uint32_t under_way() const { return under_way_; }
  void clear();

 private:
  const std::uint32_t depth_;
  std::uint32_t under_way_ = 0;
  std::uint32_t silent_ = 0;          // Posted since the last that asks.
  std::deque<std::uint32_t> groups_;  // Sizes, each ending with one that asks.
};

}  // namespace lockstep::internal
