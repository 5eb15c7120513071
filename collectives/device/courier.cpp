#include "collectives/device/courier.hpp"

#include <atomic>

#include "collectives/device/stream_words.hpp"
#include "lib/device/sync/sync_kernels.hpp"

namespace lockstep::internal {

Result<std::unique_ptr<Courier>> Courier::make(Backend& backend, int device, DeviceStream stream,
                                               std::function<bool()> is_over) {
  std::unique_ptr<Courier> courier(new Courier(backend, std::move(is_over)));
  auto desk = TransitMemory::pinned(backend, sizeof(sync::CourierDesk));
  if (!desk.ok()) return desk.status();
  courier->desk_ = std::move(*desk);
  constexpr std::size_t kBytes = sync::kCourierBlocks * sizeof(std::uint32_t);
  auto done = TransitMemory::on_device(backend, device, kBytes);
  if (!done.ok()) return done.status();
  courier->done_ = std::move(*done);
  LOCKSTEP_RETURN_IF_ERROR(backend.fill(courier->done_->data(), 0, kBytes, stream));
  LOCKSTEP_RETURN_IF_ERROR(backend.synchronize(stream));
  return courier;
}

Status Courier::enqueue(DeviceStream stream) {
  return sync::start(backend_, {&desk(), reinterpret_cast<std::uint32_t*>(done_->data()), blocks_}, stream);
}

Status Courier::copy(void* to, const void* from, std::size_t bytes) {
  return post({static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes});
}

Status Courier::await(std::uint32_t number) {
  Patience patience;
  for (int block = 0; block < blocks_; ++block) {
    for (; !has_reached(desk().done[block], number); patience.pause())
      if (patience.is_time_to_look()) LOCKSTEP_RETURN_IF_ERROR(look());
  }
  return {};
}

/// Why to wait no longer.
Status Courier::look() const {
  if (std::atomic_ref(desk().abort).load(std::memory_order_acquire) != 0 || is_over_())
    return Status(ErrorCode::aborted, "copies of the device were given up");
  if (real_env().now() < end_) return {};
  return Status(
      ErrorCode::timeout,
      "the deadline passed while a kernel that copies had not run: other kernels may leave it no room "
      "on the device, or a stream that waits keep it from there (set CUDA_DEVICE_MAX_CONNECTIONS to "
      "32 or more before the process uses the device)");
}

void Courier::send_home() { static_cast<void>(post({nullptr, nullptr, sync::Errand::kHome})); }

/// The ring may be full of errands that are not done yet.
Status Courier::post(const sync::Errand& errand) {
  LOCKSTEP_RETURN_IF_ERROR(await(posted_ + 1 - sync::kErrands));
  desk().errands[posted_ % sync::kErrands] = errand;
  std::atomic_ref(desk().posted).store(++posted_, std::memory_order_release);
  return {};
}

void Courier::let_pass() { std::atomic_ref(desk().abort).store(1, std::memory_order_release); }

}  // namespace lockstep::internal
