#include "transports/cuda_ipc/device_exports.hpp"

#include <algorithm>
#include <utility>

#include "lib/memory/descriptor_service.hpp"

namespace lockstep::internal {

DeviceExports& DeviceExports::of(Backend& backend) {
  static std::mutex mutex;
  static auto& all = *new std::map<Backend*, DeviceExports*>;
  const std::lock_guard lock(mutex);
  DeviceExports*& exports = all[&backend];
  if (exports == nullptr) exports = new DeviceExports(backend);
  return *exports;
}

DeviceExports::~DeviceExports() {
  for (const auto& [id, shared] : shared_) withdraw_descriptors(key(id.first, id.second));
}

std::string DeviceExports::key(std::uint64_t segment, std::uint64_t generation) {
  return "device/" + std::to_string(segment) + "/" + std::to_string(generation);
}

Result<std::optional<SegmentRef>> DeviceExports::share(const void* pointer, std::size_t bytes) {
  Result<Allocation> located = backend_.locate(pointer);
  if (!located.ok()) return located.status();
  const Allocation& allocation = *located;
  if (allocation.space == MemorySpace::managed) return std::optional<SegmentRef>();
  if (allocation.space != MemorySpace::device) {
    return Status(ErrorCode::invalid_argument, "only device memory is shared as such, and this is not");
  }
  const auto offset = static_cast<std::size_t>(static_cast<const std::byte*>(pointer) - allocation.base);
  if (bytes == 0 || bytes > allocation.bytes - offset) {
    return Status(ErrorCode::invalid_argument,
                  "the range is empty or runs over the end of its allocation of " +
                      std::to_string(allocation.bytes) + " bytes");
  }
  Unheld unheld(backend_);
  const std::lock_guard lock(mutex_);
  sweep(unheld);
  const Id id = id_of(allocation);
  if (!shared_.contains(id)) {
    Result<MemoryExport> exported = backend_.export_memory(allocation.base);
    if (exported.status().code() == ErrorCode::not_supported) return std::optional<SegmentRef>();
    if (!exported.ok()) return exported.status();
    if (!exported->descriptor && is_held_by_peers(allocation.base, allocation.bytes))
      return std::optional<SegmentRef>();
    Shared shared;
    LOCKSTEP_RETURN_IF_ERROR(offer(id, allocation, std::move(*exported), shared));
    shared_.emplace(id, std::move(shared));
  }
  ++shared_.at(id).shares;
  return std::optional(SegmentRef{process_token(), id.first, offset, id.second});
}

Status DeviceExports::offer(const Id& id, const Allocation& allocation, MemoryExport exported,
                            Shared& shared) {
  const Result<DeviceIdentity> device = backend_.identify(allocation.device);
  if (!device.ok()) return device.status();
  Result<OwnedCard> card = OwnedCard::make(exported, device.value());
  if (!card.ok()) return card.status();
  Result<Fd> shown = card->descriptor();
  if (!shown.ok()) return shown.status();
  shared.allocation = allocation;
  shared.users.card = std::move(*card);
  if (!exported.descriptor) {
    shared.users.base = allocation.base;
    shared.users.bytes = allocation.bytes;
  }
  std::vector<Fd> descriptors;
  descriptors.push_back(std::move(*shown));
  if (exported.descriptor) descriptors.push_back(std::move(exported.descriptor));
  return offer_descriptors(key(id.first, id.second), std::move(descriptors));
}

std::uint64_t DeviceExports::number_of(std::byte* base) {
  return numbers_.try_emplace(base, numbers_.size() + 1).first->second;
}

void DeviceExports::unshare(const SegmentRef& ref) {
  Unheld unheld(backend_);
  const std::lock_guard lock(mutex_);
  const auto found = shared_.find(id_of(ref));
  if (found == shared_.end() || --found->second.shares > 0) return;
  withdraw_descriptors(key(ref.segment, ref.generation));
  found->second.users.card.withdraw();
  withdrawn_.emplace(found->first, std::move(found->second.users));
  shared_.erase(found);
  sweep(unheld);
}

bool DeviceExports::in_use(const Id& id) const {
  const auto found = withdrawn_.find(id);
  return shared_.contains(id) || (found != withdrawn_.end() && found->second.any());
}

/// Freed by its owner all the same: a driver opens no other handle of these addresses beside it.
bool DeviceExports::is_held_by_peers(const std::byte* base, std::size_t bytes) const {
  return std::any_of(withdrawn_.begin(), withdrawn_.end(), [&](const auto& entry) {
    const Users& users = entry.second;
    return users.base < base + bytes && base < users.base + users.bytes && users.card.held();
  });
}

bool DeviceExports::held(const SegmentRef& ref) const {
  const std::lock_guard lock(mutex_);
  return !shared_.contains(id_of(ref)) && in_use(id_of(ref));
}

void DeviceExports::retire(void* memory) {
  const Result<Allocation> located = backend_.locate(memory);
  Unheld unheld(backend_);
  const std::lock_guard lock(mutex_);
  if (located.ok()) retired_.emplace(id_of(located.value()), memory);
  sweep(unheld);
}

DeviceExports::Unheld::~Unheld() {
  for (void* const one : memory) static_cast<void>(owner.free(one));
}

void DeviceExports::sweep(Unheld& unheld) {
  std::erase_if(withdrawn_, [](const auto& entry) { return !entry.second.any(); });
  std::erase_if(retired_, [&](const auto& entry) {
    if (in_use(entry.first)) return false;
    unheld.memory.push_back(entry.second);
    return true;
  });
}

std::optional<DeviceExports::Own> DeviceExports::find(std::uint64_t segment, std::uint64_t generation) const {
  const std::lock_guard lock(mutex_);
  const auto found = shared_.find({segment, generation});
  if (found == shared_.end()) return std::nullopt;
  return Own{found->second.allocation, found->second.users.here};
}

}  // namespace lockstep::internal
