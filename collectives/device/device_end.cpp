#include "collectives/device/device_end.hpp"

#include "collectives/device/patience.hpp"

namespace lockstep::internal {

void DeviceEnd::fail(const Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = why;
  }
  groups_.revoke(why);
}

Status DeviceEnd::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Status DeviceEnd::known_state() {
  if (Status status = failure(); !status.ok()) return status;
  heed_kernels();
  if (const Status why = finished_ ? Status() : groups_.ended(); !why.ok()) fail(why);
  return failure();
}

/// A kernel that gave up let its stream go on, and whoever saw that asks at once. The worker can tell of
/// which call it was, but for those in graphs.
void DeviceEnd::heed_kernels() {
  const auto found = trouble();
  if (!found) return;
  if (recorded_) return fail(groups_.explained(*found, "a call in a graph"));
  for (const Nanos end = real_env().now() + kVerdict; failure().ok() && real_env().now() < end;)
    sleep_for(kPause);
  if (failure().ok()) fail(groups_.explained(*found, "a call"));
}

std::optional<CallTrouble> DeviceEnd::trouble() const {
  return sync_runner_ != nullptr ? sync_runner_->trouble() : std::nullopt;
}

void DeviceEnd::release_waits() {
  if (across_ != nullptr) across_->let_pass();
  if (courier_ != nullptr) courier_->let_pass();
  if (sync_runner_ != nullptr) static_cast<void>(sync_runner_->let_pass(stream_));
}

void DeviceEnd::let_graphs_pass() {
  if (recorded_ && capturer_ != nullptr) static_cast<void>(capturer_->let_pass(stream_));
}

void DeviceEnd::finish() {
  finished_ = true;
  groups_.close();
}

/// Where nobody could write, kernels that wait are let go first, which needs no call of the driver.
void DeviceEnd::close() {
  if (windows_.empty()) release_waits();
  const Status closed = groups_.of_near(steps_.close());
  if (closed.code() != ErrorCode::timeout) return;
  const std::lock_guard lock(mutex_);
  failure_ = Status(
      failure_.code(),
      failure_.message() + "; what is under way may still write to buffers of this rank: " + closed.message(),
      failure_.culprit());
}

}  // namespace lockstep::internal
