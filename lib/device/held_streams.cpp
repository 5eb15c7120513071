#include "lib/device/held_streams.hpp"

#include <map>
#include <utility>

namespace lockstep::internal {

HeldStreams& HeldStreams::of(int device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, HeldStreams>;
  const std::lock_guard lock(mutex);
  return all[device];
}

void HeldStreams::hold() {
  const std::lock_guard lock(mutex_);
  ++held_;
}

void HeldStreams::release() {
  const std::lock_guard lock(mutex_);
  if (--held_ > 0) return;
  for (const auto& work : std::exchange(put_off_, {})) static_cast<void>(work());
}

Status HeldStreams::when_none(std::function<Status()> work) {
  const std::lock_guard lock(mutex_);
  if (held_ == 0) return work();
  put_off_.push_back(std::move(work));
  return {};
}

}  // namespace lockstep::internal
