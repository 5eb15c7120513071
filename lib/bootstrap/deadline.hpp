// Deadline: a moment in the future, as the start-up's blocking loops need it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"

namespace lockstep::internal {

class Deadline {
 public:
  /// `timeout` from now; a negative one is over already.
  Deadline(Env& env, std::chrono::milliseconds timeout) : env_(&env), start_(env.now()) {
    const Nanos most = kForever - start_;
    const std::int64_t limit = most / kPerMilli;
    when_ =
        timeout.count() >= limit ? kForever : start_ + std::max<std::int64_t>(timeout.count(), 0) * kPerMilli;
  }
  Nanos when() const { return when_; }
  bool passed() const { return env_->now() >= when_; }
  /// Rounded up, so that waiting for left() never ends just before the deadline.
  std::chrono::milliseconds left() const {
    const Nanos left = when_ - env_->now();
    return std::chrono::milliseconds(left <= 0 ? 0 : (left - 1) / kPerMilli + 1);
  }
  /// left() for those who take 0 for no deadline: never 0, and an error once it passed. `what` was to be done
  /// by then: "setting up the group".
  Result<std::chrono::milliseconds> left_for(std::string_view what) const {
    if (const auto some = left(); some.count() > 0) return some;
    return Status(ErrorCode::timeout, "no time was left for " + std::string(what) + " after " +
                                          std::to_string(seconds_waited()) + " s");
  }
  /// For poll(2).
  int poll_timeout() const { return static_cast<int>(std::min<std::int64_t>(left().count(), kMaxPoll)); }
  /// Whole seconds since the deadline was set, for messages.
  std::int64_t seconds_waited() const { return (env_->now() - start_) / (1000 * kPerMilli); }

 private:
  static constexpr std::int64_t kPerMilli = 1'000'000;
  static constexpr std::int64_t kMaxPoll = 1 << 30;  // poll(2) takes an int.
  Env* env_;
  Nanos start_;
  Nanos when_;
};

}  // namespace lockstep::internal
