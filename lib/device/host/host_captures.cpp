#include "lib/device/host/host_captures.hpp"

#include <string>
#include <utility>

namespace lockstep::internal {

static thread_local bool heeds_captures = true;

bool HostCaptures::heed(bool heeds) { return std::exchange(heeds_captures, heeds); }

void HostCaptures::begin(DeviceStream stream, CaptureScope scope) {
  const std::lock_guard lock(mutex_);
  captures_[stream] = {std::this_thread::get_id(), scope};
}

Status HostCaptures::end(DeviceStream stream) {
  const std::lock_guard lock(mutex_);
  const auto capture = captures_.extract(stream);
  if (capture.empty() || capture.mapped().broken_by == nullptr) return {};
  return Status(ErrorCode::invalid_argument,
                std::string("the capture is broken: ") + capture.mapped().broken_by + " meanwhile");
}

Status HostCaptures::allow(const char* what) {
  const std::lock_guard lock(mutex_);
  bool allowed = true;
  for (auto& [stream, capture] : captures_) {
    const bool is_own = capture.thread == std::this_thread::get_id();
    if (!is_own && !(capture.scope == CaptureScope::process && heeds_captures)) continue;
    capture.broken_by = what;
    allowed = false;
  }
  if (allowed) return {};
  return Status(ErrorCode::invalid_argument,
                std::string(what) + " is not allowed while a stream is being captured");
}

}  // namespace lockstep::internal
