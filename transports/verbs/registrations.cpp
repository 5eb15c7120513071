#include "transports/verbs/registrations.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "transports/verbs/limits.hpp"

namespace lockstep::internal {

Registrations::~Registrations() {
  while (!kept_.empty()) drop(kept_.begin());
  for (const Own& own : own_) {
    device_->deregister(own.region);
    munmap(own.memory.data(), own.memory.size());
  }
}

Result<std::span<std::byte>> Registrations::allocate(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("mapping " + std::to_string(bytes) + " bytes", errno);
  auto region = device_->register_memory(memory, bytes, true);
  if (!region.ok()) {
    munmap(memory, bytes);
    return region.status();
  }
  own_.push_front({{static_cast<std::byte*>(memory), bytes}, *region});
  return own_.front().memory;
}

ibv_mr* Registrations::find(const void* memory, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t end = begin + bytes;
  for (const Own& own : own_) {
    const auto own_begin = reinterpret_cast<std::uintptr_t>(own.memory.data());
    if (begin >= own_begin && end <= own_begin + own.memory.size()) return own.region;
  }
  auto segment = find_segment(memory, bytes);
  if (!segment) return nullptr;
  segment->offset = 0;
  for (auto kept = kept_.begin(); kept != kept_.end(); ++kept) {
    if (kept->segment != *segment || begin < kept->begin || end > kept->end) continue;
    kept_.splice(kept_.begin(), kept_, kept);
    return kept->region;
  }
  drop_stale();
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t from = begin / page * page, to = (end + page - 1) / page * page;
  auto region = device_->register_memory(reinterpret_cast<void*>(from), to - from, true);
  if (!region.ok()) return nullptr;  // The link's own memory is used instead.
  kept_.push_front({*segment, from, to, *region});
  return *region;
}

void Registrations::drop(std::list<Kept>::iterator kept) {
  device_->deregister(kept->region);
  kept_.erase(kept);
}

/// Those whose segment is gone or replaced, and the one that was not used for longest when there are too
/// many.
void Registrations::drop_stale() {
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const auto next = std::next(kept);
    if (own_address(kept->segment, 1) == nullptr) drop(kept);
    kept = next;
  }
  if (kept_.size() >= kKeptRegistrations) drop(std::prev(kept_.end()));
}

}  // namespace lockstep::internal
