#include "collectives/device/courier.hpp"

#include <atomic>

#include "collectives/device/stream_words.hpp"
#include "lib/device/sync/sync_kernels.hpp"

namespace lockstep::internal {

Result<std::unique_ptr<Courier>> Courier::make(Backend& backend, int device, DeviceStream stream) {
  std::unique_ptr<Courier> courier(new Courier(backend));
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

Status Courier::await(Nanos end) { return await(posted_, end); }

Status Courier::await(std::uint32_t number, Nanos end) {
  Patience patience;
  for (int block = 0; block < blocks_; ++block) {
    while (!has_reached(desk().done[block], number)) {
      if (std::atomic_ref(desk().abort).load(std::memory_order_acquire) != 0)
        return Status(ErrorCode::aborted, "copies of the device were given up");
      if (patience.is_time_to_look() && real_env().now() >= end) return kept_from_device();
      patience.pause();
    }
  }
  return {};
}

void Courier::send_home() { static_cast<void>(post({nullptr, nullptr, sync::Errand::kHome})); }

/// The ring may be full of errands that are not done.
Status Courier::post(const sync::Errand& errand) {
  LOCKSTEP_RETURN_IF_ERROR(await(posted_ + 1 - sync::kErrands, kForever));
  desk().errands[posted_ % sync::kErrands] = errand;
  std::atomic_ref(desk().posted).store(++posted_, std::memory_order_release);
  return {};
}

void Courier::let_pass() { std::atomic_ref(desk().abort).store(1, std::memory_order_release); }

}  // namespace lockstep::internal
