#include "transports/verbs/queue_sizes.hpp"

#include <algorithm>
#include <string>

#include "lib/base/config.hpp"
#include "transports/verbs/limits.hpp"

namespace lockstep::internal {

Result<QueueSizes> queue_sizes(int size, const DeviceLimits& device) {
  const auto peers = static_cast<std::uint64_t>(size) - 1;
  const std::uint64_t receives = peers * kReceivesOfPeer;
  const std::uint64_t completions = receives + peers * kSendDepth;
  const struct {
    const char* what;
    std::uint64_t wanted, there;
  } needs[] = {{"queue pairs", peers, device.queue_pairs},
               {"send requests in a queue pair", kSendDepth, device.work_requests},
               {"receives in a shared queue", receives, device.shared_receives},
               {"entries in a completion queue", completions, device.completions},
               {"bytes in a message", kSlotBytes, device.message_bytes}};
  for (const auto& need : needs) {
    if (need.wanted <= need.there) continue;
    return Status(ErrorCode::configuration, "a group of " + std::to_string(size) + " needs " +
                                                std::to_string(need.wanted) + " " + need.what +
                                                ", but the RDMA device has " + std::to_string(need.there) +
                                                ": use fewer ranks, LOCKSTEP_TRANSPORTS=ucx or tcp");
  }
  return QueueSizes{kSendDepth, static_cast<std::uint32_t>(receives), static_cast<std::uint32_t>(completions),
                    std::min(kWriteBytes, device.message_bytes)};
}

std::uint8_t acknowledgement_timeout() {
  return static_cast<std::uint8_t>(config_integer("LOCKSTEP_VERBS_TIMEOUT"));
}

bool SendBudget::post(bool wanted) {
  ++under_way_;
  ++silent_;
  if (!wanted && silent_ < kSignalEvery && room()) return false;
  groups_.push_back(silent_);
  silent_ = 0;
  return true;
}

std::uint32_t SendBudget::complete() {
  if (groups_.empty()) return 0;
  const std::uint32_t retired = groups_.front();
  groups_.pop_front();
  under_way_ -= retired;
  return retired;
}

void SendBudget::clear() {
  groups_.clear();
  under_way_ = silent_ = 0;
}

}  // namespace lockstep::internal
