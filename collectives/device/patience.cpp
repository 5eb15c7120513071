#include "collectives/device/patience.hpp"

#include <sched.h>

namespace lockstep::internal {
namespace {

/// The own copies and kernels end soon: a sleep within this would be seen in the bandwidth.
constexpr Nanos kYieldingForStream = 20'000'000;
constexpr Nanos kLetEnd = 1'000'000'000;

}  // namespace

bool Patience::is_time_to_look() {
  now_ = real_env().now();
  if (now_ - looked_ <= kLookEvery) return false;
  looked_ = now_;
  return true;
}

void Patience::pause() const {
  if (now_ - start_ < busy_) return;
  now_ - start_ < kYieldingWait ? void(sched_yield()) : sleep_for(kPause);
}

Nanos end_after(Nanos timeout) { return timeout == 0 ? kForever : real_env().now() + timeout; }

Status kept_from_device() {
  return Status(ErrorCode::timeout,
                "the deadline passed while copies and kernels had not run: a stream that waits "
                "keeps them from the device, so set CUDA_DEVICE_MAX_CONNECTIONS to 32 or more before the "
                "process uses it");
}

Status await_stream(Backend& backend, DeviceStream stream, Nanos end) {
  const Nanos start = real_env().now();
  for (;;) {
    auto idle = backend.idle(stream);
    if (!idle.ok()) return idle.status();
    if (idle.value()) return {};
    const Nanos now = real_env().now();
    if (now >= end) return kept_from_device();
    if (now - start < kBusyWait) continue;
    now - start < kYieldingForStream ? void(sched_yield()) : sleep_for(kPause);
  }
}

void let_end(Backend& backend, DeviceStream stream) {
  static_cast<void>(await_stream(backend, stream, end_after(kLetEnd)));
}

}  // namespace lockstep::internal
