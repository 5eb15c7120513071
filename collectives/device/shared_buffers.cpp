#include "collectives/device/shared_buffers.hpp"

#include <array>
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
  for (const auto& [address, whole] : wholes_) exports_.unshare(whole.ref);
  static_cast<void>(HeldStreams::of(device_).when_none(
      [&imports = imports_, kept = kept_,
       leases = std::array{std::move(leases_), std::move(kept_leases_)}]() mutable -> Status {
        leases = {};
        static_cast<void>(kept->drop_if([](const auto&) { return true; }));
        imports.drop_withdrawn();
        return {};
      }));
}

Status SharedBuffers::add(void* pointer, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const auto shared = share(pointer, bytes);
  if (!shared.ok()) return shared.status();
  if (!shared.value()) {
    added_.emplace(begin, std::nullopt);
    return {};
  }
  const SegmentRef& ref = *shared.value();
  if (const auto around = whole_around(begin, bytes)) {
    exports_.unshare(ref);  // The whole has its own.
    Whole& whole = wholes_.at(*around);
    if (whole.ref.generation != ref.generation)
      return Status(
          ErrorCode::invalid_argument,
          "the range lies in a buffer that was freed while it was registered: deregister that first");
    ++whole.uses;
    added_.emplace(begin, *around);
    return {};
  }
  wholes_[begin] = {bytes, ref, take_parts_of(begin, bytes) + 1};
  added_.emplace(begin, begin);
  return {};
}

Result<std::optional<SegmentRef>> SharedBuffers::share(const void* pointer, std::size_t bytes) {
  const auto over = lies_over_mappings(pointer, bytes);
  if (!over.ok()) return over.status();
  if (over.value()) return std::optional<SegmentRef>();
  return exports_.share(pointer, bytes);
}

/// Of those that begin at or before `begin` the last ends last.
std::optional<std::uintptr_t> SharedBuffers::whole_around(std::uintptr_t begin, std::size_t bytes) const {
  const auto after = wholes_.upper_bound(begin);
  if (after == wholes_.begin()) return std::nullopt;
  const auto& [at, whole] = *std::prev(after);
  if (begin + bytes > at + whole.bytes) return std::nullopt;
  return at;
}

/// A whole is to begin at `begin`: the uses of those that lie within become its own, and their number is
/// given.
int SharedBuffers::take_parts_of(std::uintptr_t begin, std::size_t bytes) {
  int uses = 0;
  auto part = wholes_.lower_bound(begin);
  while (part != wholes_.end() && part->first + part->second.bytes <= begin + bytes) {
    uses += part->second.uses;
    for (auto& [pointer, whole] : added_) {
      if (whole == part->first) whole = begin;
    }
    exports_.unshare(part->second.ref);
    part = wholes_.erase(part);
  }
  return uses;
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
  const auto found = added_.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == added_.end())
    return Status(ErrorCode::invalid_argument, "no registered buffer begins at this address");
  const std::optional<std::uintptr_t> begin = found->second;
  added_.erase(found);
  if (!begin) return {};
  const auto whole = wholes_.find(*begin);
  if (--whole->second.uses > 0) return {};
  exports_.unshare(whole->second.ref);
  wholes_.erase(whole);
  return {};
}

bool SharedBuffers::begins_at(const void* pointer) const {
  const std::lock_guard lock(mutex_);
  return added_.contains(reinterpret_cast<std::uintptr_t>(pointer));
}

SegmentRef SharedBuffers::find(const void* pointer, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto begin = reinterpret_cast<std::uintptr_t>(pointer);
  const auto whole = whole_around(begin, bytes);
  if (!whole) return {};
  SegmentRef ref = wholes_.at(*whole).ref;
  ref.offset += begin - *whole;
  return ref;
}

Result<DeviceLease> SharedBuffers::lease(int member, const SegmentRef& ref, std::size_t bytes) {
  auto lease = imports_.resolve(owners_[static_cast<std::size_t>(member)], ref, bytes, device_);
  if (!lease.ok()) {
    return lease.status().blamed_on(member).with_context("mapping device memory of rank " +
                                                         std::to_string(member));
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
    static_cast<void>(
        kept->drop_if([](const auto& one) { return one->withdrawn() || one.use_count() == 1; }));
    imports.drop_withdrawn();
    return {};
  }));
}

void SharedBuffers::Kept::add(const std::shared_ptr<const ImportedAllocation>& allocation) {
  const std::lock_guard lock(mutex);
  allocations.insert(allocation);
}

/// A mapping that nothing uses is here and in the table of imports. Another communicator's stays until that
/// lets go of it.
void SharedBuffers::let_go(std::vector<DeviceLease> leases) {
  if (leases.empty()) return;
  static_cast<void>(HeldStreams::of(device_).when_none(
      [&imports = imports_, kept = kept_, leases = std::move(leases)]() mutable -> Status {
        leases.clear();
        const auto unused =
            kept->drop_if([](const auto& one) { return one->withdrawn() || one.use_count() <= 2; });
        for (const auto& one : unused) imports.drop_unused(one);
        imports.drop_withdrawn();
        return {};
      }));
}

template <typename Condition>
std::vector<std::shared_ptr<const ImportedAllocation>> SharedBuffers::Kept::drop_if(Condition condition) {
  std::vector<std::shared_ptr<const ImportedAllocation>> dropped;
  const std::lock_guard lock(mutex);
  std::erase_if(allocations, [&](const auto& one) {
    if (!condition(one)) return false;
    dropped.push_back(one);
    return true;
  });
  return dropped;
}

}  // namespace lockstep::internal
