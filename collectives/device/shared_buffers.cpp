#include "collectives/device/shared_buffers.hpp"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "lib/device/held_streams.hpp"

namespace lockstep::internal {

SharedBuffers::SharedBuffers(Backend& backend, int device, const std::vector<Member>& members)
    : backend_(backend),
      device_(device),
      exports_(DeviceExports::of(backend)),
      imports_(DeviceImports::of(backend)) {
  for (const Member& member : members) owners_.push_back({member.process, member.descriptor_service});
}

SharedBuffers::~SharedBuffers() {
  // The peers may be gone, or go, without a word. What another communicator uses of theirs lives on in its
  // leases.
  for (const DeviceOwner& owner : owners_) {
    if (owner.process != process_token()) imports_.drop_owner(owner.process);
  }
  for (const auto& [address, buffer] : buffers_) {
    if (buffer.ref.owner != 0) exports_.unshare(buffer.ref);
  }
  leases_.clear();
  kept_leases_.clear();
  static_cast<void>(HeldStreams::of(device_).when_none([&imports = imports_, kept = kept_]() -> Status {
    kept->drop_if([](const auto&) { return true; });
    imports.drop_withdrawn();
    return {};
  }));
}

Status SharedBuffers::add(void* pointer, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const auto after = buffers_.upper_bound(begin);
  const bool overlaps =
      (after != buffers_.end() && after->first < begin + bytes) ||
      (after != buffers_.begin() && std::prev(after)->first + std::prev(after)->second.bytes > begin);
  if (overlaps)
    return Status(ErrorCode::invalid_argument, "the range overlaps one that is registered already");
  auto over = lies_over_mappings(pointer, bytes);
  if (!over.ok()) return over.status();
  SegmentRef ref;
  if (!*over) {
    auto shared = exports_.share(pointer, bytes);
    if (!shared.ok()) return shared.status();
    ref = shared->value_or(SegmentRef{});
  }
  buffers_[begin] = {bytes, ref};
  return {};
}

/// Each has a handle of its own: such a range is staged. Not where it ends in memory of another kind.
Result<bool> SharedBuffers::lies_over_mappings(const void* pointer, std::size_t bytes) const {
  const auto first = backend_.locate(pointer);
  if (!first.ok()) return first.status();
  const Allocation& memory = first.value();
  const auto* const end = static_cast<const std::byte*>(pointer) + bytes;
  if (!memory.is_part || end <= memory.base + memory.bytes) return false;
  const auto last = backend_.locate(end - 1);
  if (!last.ok()) return last.status();
  return last.value().space == MemorySpace::device && last.value().device == memory.device;
}

Status SharedBuffers::remove(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = buffers_.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == buffers_.end())
    return Status(ErrorCode::invalid_argument, "no registered buffer begins at this address");
  if (found->second.ref.owner != 0) exports_.unshare(found->second.ref);
  buffers_.erase(found);
  return {};
}

SegmentRef SharedBuffers::find(const void* pointer, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const auto after = buffers_.upper_bound(begin);
  if (after == buffers_.begin()) return {};
  const auto& [at, buffer] = *std::prev(after);
  if (buffer.ref.owner == 0 || begin + bytes > at + buffer.bytes) return {};
  SegmentRef ref = buffer.ref;
  ref.offset += begin - at;
  return ref;
}

Result<DeviceLease> SharedBuffers::lease(int member, const SegmentRef& ref, std::size_t bytes) {
  auto lease = imports_.resolve(owners_[static_cast<std::size_t>(member)], ref, bytes, device_);
  if (!lease.ok()) {
    return Status(lease.status().code(),
                  "mapping device memory of rank " + std::to_string(member) + ": " + lease.status().message(),
                  member);
  }
  if (ref.owner != process_token()) kept_->add(lease->allocation);
  return lease;
}

Result<std::byte*> SharedBuffers::resolve(int member, const SegmentRef& ref, std::size_t bytes,
                                          bool for_ever) {
  auto lease = this->lease(member, ref, bytes);
  if (!lease.ok()) return lease.status();
  std::byte* const address = lease->address;
  const std::lock_guard lock(mutex_);
  (for_ever ? kept_leases_ : leases_).push_back(std::move(*lease));
  return address;
}

/// Put off at most once, however many operations follow one another without a break.
void SharedBuffers::forget_peers() {
  {
    const std::lock_guard lock(mutex_);
    if (leases_.empty()) return;
    leases_.clear();
  }
  if (kept_->drop_is_put_off.exchange(true)) return;
  static_cast<void>(HeldStreams::of(device_).when_none([&imports = imports_, kept = kept_]() -> Status {
    kept->drop_is_put_off = false;
    kept->drop_if([](const auto& one) { return one->withdrawn() || one.use_count() == 1; });
    imports.drop_withdrawn();
    return {};
  }));
}

void SharedBuffers::Kept::add(const std::shared_ptr<const ImportedAllocation>& allocation) {
  const std::lock_guard lock(mutex);
  allocations.insert(allocation);
}

template <typename Condition>
void SharedBuffers::Kept::drop_if(Condition condition) {
  std::vector<std::shared_ptr<const ImportedAllocation>> dropped;  // They end outside the lock.
  const std::lock_guard lock(mutex);
  std::erase_if(allocations, [&](const auto& one) {
    if (!condition(one)) return false;
    dropped.push_back(one);
    return true;
  });
}

}  // namespace lockstep::internal
