#include "transports/cuda_ipc/device_imports.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "lib/memory/descriptor_service.hpp"

namespace lockstep::internal {

ImportedAllocation::~ImportedAllocation() {
  if (!card_.has_value() || base_ == nullptr) return;
  // The lock on the card goes after the mapping, so that the owner does not free what is mapped here.
  const DeviceScope scope(backend_, device_);
  static_cast<void>(backend_.close_imported(base_));
}

DeviceImports& DeviceImports::of(Backend& backend) {
  static std::mutex mutex;
  static auto& all = *new std::map<Backend*, DeviceImports*>;
  const std::lock_guard lock(mutex);
  DeviceImports*& imports = all[&backend];
  if (imports == nullptr) imports = new DeviceImports(backend, DeviceExports::of(backend));
  return *imports;
}

Result<DeviceLease> DeviceImports::resolve(const DeviceOwner& owner, const SegmentRef& ref, std::size_t bytes,
                                           int device) {
  if (ref.owner != owner.process) {
    return Status(ErrorCode::internal, "a peer names device memory of another process");
  }
  auto allocation = ref.owner == process_token() ? own_memory(ref, device) : find_or_map(owner, ref, device);
  if (!allocation.ok()) return allocation.status();
  const std::size_t size = (*allocation)->bytes();
  if (ref.offset > size || bytes > size - ref.offset) {
    return Status(ErrorCode::internal, "a peer names device memory beyond the end of its allocation");
  }
  return DeviceLease{*allocation, (*allocation)->base() + ref.offset};
}

/// Memory of this process is not mapped again; another device of it needs peer access.
Result<std::shared_ptr<const ImportedAllocation>> DeviceImports::own_memory(const SegmentRef& ref,
                                                                            int device) {
  std::optional<DeviceExports::Own> own = own_.find(ref.segment, ref.generation);
  if (!own) return Status(ErrorCode::internal, "this device memory is not shared any more");
  const Allocation& found = own->allocation;
  LOCKSTEP_RETURN_IF_ERROR(check_reach(device, found.device));
  LOCKSTEP_RETURN_IF_ERROR(backend_.enable_peer(device, found.device));
  auto allocation = std::shared_ptr<ImportedAllocation>(new ImportedAllocation(backend_, device));
  allocation->base_ = found.base;
  allocation->bytes_ = found.bytes;
  allocation->user_ = std::move(own->user);
  return std::shared_ptr<const ImportedAllocation>(std::move(allocation));
}

/// While `key` is being mapped, without the lock. Whoever waits for it goes on afterwards, whatever came of
/// it.
class DeviceImports::Unlocked {
 public:
  Unlocked(DeviceImports& imports, std::unique_lock<std::mutex>& lock, const Key& key)
      : imports_(imports), lock_(lock), key_(key) {
    lock_.unlock();
  }
  ~Unlocked() {
    lock_.lock();
    imports_.mapping_.erase(key_);
    imports_.mapped_.notify_all();
  }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  DeviceImports& imports_;
  std::unique_lock<std::mutex>& lock_;
  const Key& key_;
};

Result<std::shared_ptr<const ImportedAllocation>> DeviceImports::find_or_map(const DeviceOwner& owner,
                                                                             const SegmentRef& ref,
                                                                             int device) {
  const Key key(ref.owner, ref.segment, device);
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto known = find(key, ref.generation)) return known;
    if (mapping_.insert(key).second) break;
    mapped_.wait(lock);
  }
  auto mapped = [&] {
    const Unlocked meanwhile(*this, lock, key);
    return map(owner, ref, device);
  }();
  if (!mapped.ok()) return mapped.status();
  make_room();
  entries_[key] = {ref.generation, ++clock_, *mapped};
  return mapped;
}

/// Null where it is not mapped; an earlier generation, or what was withdrawn, is let go of.
std::shared_ptr<const ImportedAllocation> DeviceImports::find(const Key& key, std::uint64_t generation) {
  const auto known = entries_.find(key);
  if (known == entries_.end()) return nullptr;
  if (known->second.generation == generation && !known->second.allocation->withdrawn()) {
    known->second.used = ++clock_;
    return known->second.allocation;
  }
  entries_.erase(known);
  return nullptr;
}

Result<std::shared_ptr<const ImportedAllocation>> DeviceImports::map(const DeviceOwner& owner,
                                                                     const SegmentRef& ref, int device) {
  Result<std::vector<Fd>> descriptors = fetch_descriptors(
      owner.service, DeviceExports::key(ref.segment, ref.generation), IfAbsent::fail, kImportTimeoutMs);
  if (!descriptors.ok()) return descriptors.status();
  Result<PeersCard> card = PeersCard::open(descriptors->front());
  if (!card.ok()) return card.status();
  LOCKSTEP_RETURN_IF_ERROR(check_reach(device, card->device()));
  LOCKSTEP_RETURN_IF_ERROR(card->hold());
  if (card->withdrawn()) return Status(ErrorCode::internal, "its owner has withdrawn this device memory");
  MemoryExport memory;
  card->describe(memory);
  if (descriptors->size() > 1) memory.descriptor = std::move((*descriptors)[1]);
  const DeviceScope scope(backend_, device);
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  Result<void*> base = backend_.import_memory(memory);
  if (!base.ok()) return base.status();
  auto allocation = std::shared_ptr<ImportedAllocation>(new ImportedAllocation(backend_, device));
  allocation->base_ = static_cast<std::byte*>(*base);
  allocation->bytes_ = memory.bytes;
  allocation->card_ = std::move(*card);
  return std::shared_ptr<const ImportedAllocation>(std::move(allocation));
}

/// Where this process sees the device of the memory; where it does not, the import itself will tell. The
/// import opens that memory and no other: with enable_peer() each process would take memory of all devices.
Status DeviceImports::check_reach(int device, const std::array<std::uint8_t, 16>& uuid) {
  const Result<int> count = backend_.device_count();
  if (!count.ok()) return count.status();
  for (int peer = 0; peer < count.value(); ++peer) {
    const Result<DeviceIdentity> identity = backend_.identify(peer);
    if (!identity.ok()) return identity.status();
    if (identity.value().uuid != uuid) continue;
    return check_reach(device, peer);
  }
  return Status();
}

Status DeviceImports::check_reach(int device, int peer) {
  const Result<bool> may = backend_.can_access(device, peer);
  if (!may.ok() || may.value()) return may.status();
  return Status(
      ErrorCode::not_supported,
      "device " + std::to_string(device) + " has no access to the memory of device " + std::to_string(peer));
}

void DeviceImports::make_room() {
  if (entries_.size() < most_) return;
  entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return a.second.used < b.second.used;
  }));
}

void DeviceImports::drop_owner(std::uint64_t process) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [process](const auto& entry) { return std::get<0>(entry.first) == process; });
}

void DeviceImports::drop_unused(const std::shared_ptr<const ImportedAllocation>& allocation) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& entry) {
    return entry.second.allocation == allocation && allocation.use_count() == 2;
  });
}

void DeviceImports::drop_withdrawn() {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.allocation->withdrawn(); });
}

std::size_t DeviceImports::size() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

}  // namespace lockstep::internal
