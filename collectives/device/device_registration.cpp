// DeviceCore: the caller's memory, as far as peers may use it where it lies.
#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/device/device_core.hpp"
#include "collectives/device/exchange.hpp"

namespace lockstep::internal {

Status DeviceCore::register_buffer(void* pointer, std::size_t bytes) {
  const DeviceScope scope(parts_->backend, parts_->device);  // The driver answers threads that have a device.
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  return parts_->buffers->add(pointer, bytes);
}

Status DeviceCore::register_window(void* pointer, std::size_t bytes, bool same_places) {
  const Status own = register_buffer(pointer, bytes);
  Status all = agree(*parts_->groups.control, own);
  if (all.ok() && same_places && parts_->runner != nullptr)
    all = agree(*parts_->groups.control, open_window(static_cast<std::byte*>(pointer), bytes));
  if (own.ok() && !all.ok()) static_cast<void>(deregister(pointer));
  return all;
}

/// Among the ranks of this host. Where the memory of one cannot be shared it stays registered, and is staged.
Status DeviceCore::open_window(std::byte* base, std::size_t bytes) {
  if (parts_->steps->guard() == nullptr) return {};
  struct Part {
    SegmentRef ref;
    std::uint64_t bytes = 0;
  };
  // A window is closed by a stream beside the one that waits (DeviceEnd::close).
  const SegmentRef own = parts_->gate_fault.ok() ? parts_->buffers->find(base, bytes) : SegmentRef{};
  CommunicatorCore& near = *parts_->groups.near;
  const auto parts = exchange_records(near, Part{own, bytes});
  if (!parts.ok()) return parts.status();
  std::vector<std::byte*> members;
  std::vector<DeviceLease> leases;
  Status mapped;
  for (int member = 0; member < near.size(); ++member) {
    const Part& part = parts.value()[static_cast<std::size_t>(member)];
    if (part.ref.owner == 0) return {};
    bytes = std::min<std::size_t>(bytes, part.bytes);
    members.push_back(base);
    if (member == near.rank() || !mapped.ok()) continue;
    auto lease = parts_->buffers->lease(member, part.ref, part.bytes);
    mapped = lease.status();
    if (!mapped.ok()) continue;
    members.back() = lease->address;
    leases.push_back(std::move(*lease));
  }
  LOCKSTEP_RETURN_IF_ERROR(agree(near, mapped));
  parts_->windows.add(base, bytes, std::move(members), std::move(leases));
  return {};
}

Status DeviceCore::deregister(void* pointer) {
  const DeviceScope scope(parts_->backend, parts_->device);
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  LOCKSTEP_RETURN_IF_ERROR(parts_->buffers->remove(pointer));
  if (!parts_->buffers->begins_at(pointer)) parts_->buffers->let_go(parts_->windows.remove(pointer));
  return {};
}

bool DeviceCore::is_registered(const void* pointer, std::size_t bytes) const {
  return parts_->buffers->find(pointer, bytes).owner != 0;
}

}  // namespace lockstep::internal
