// Registrations: which memory a fabric may reach. Memory of lockstep::allocate is registered when it is first
// used and stays so; other memory is never registered, since nobody tells when it is unmapped.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <string>

#include "lib/memory/mapping.hpp"
#include "lib/memory/segment.hpp"
#include "transports/fabric/limits.hpp"

namespace lockstep::internal {

/// `Region` is what the fabric knows registered memory by; it is registered as long as its region lives.
template <class Region>
class Registrations {
 public:
  using RegionPtr = std::shared_ptr<Region>;
  /// Registers memory, for peers to write to.
  using Register = std::function<Result<RegionPtr>(void* memory, std::size_t bytes)>;

  explicit Registrations(Register register_memory) : register_(std::move(register_memory)) {}
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// New memory that peers may write to, for the fabric's own use; it ends with this. A forked child does not
  /// copy it, so its pages stay where the device knows them.
  Result<std::span<std::byte>> allocate(std::size_t bytes);

  /// The registration that holds all of this memory; null when it is neither the fabric's own nor of a
  /// segment, or cannot be registered. Whoever uses the memory holds it meanwhile.
  RegionPtr find(const void* memory, std::size_t bytes);

 private:
  struct Own {
    std::span<std::byte> memory;
    RegionPtr region;
  };
  struct Kept {
    SegmentRef segment;  // With offset 0.
    std::uintptr_t begin, end;
    RegionPtr region;
  };
  RegionPtr keep(const SegmentRef& segment, std::uintptr_t begin, std::uintptr_t end);
  void drop_stale();

  const Register register_;
  std::list<Own> own_;
  std::list<Kept> kept_;  // Last used first.
};

template <class Region>
Registrations<Region>::~Registrations() {
  for (Own& own : own_) {
    own.region.reset();
    munmap(own.memory.data(), own.memory.size());
  }
}

template <class Region>
Result<std::span<std::byte>> Registrations<Region>::allocate(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return system_error("mapping " + std::to_string(bytes) + " bytes", errno);
  auto region = register_(memory, bytes);
  if (!region.ok()) {
    munmap(memory, bytes);
    return region.status();
  }
  own_.push_front({{static_cast<std::byte*>(memory), bytes}, std::move(*region)});
  return own_.front().memory;
}

template <class Region>
auto Registrations<Region>::find(const void* memory, std::size_t bytes) -> RegionPtr {
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
  return keep(*segment, begin, end);
}

template <class Region>
auto Registrations<Region>::keep(const SegmentRef& segment, std::uintptr_t begin, std::uintptr_t end)
    -> RegionPtr {
  drop_stale();
  const std::uintptr_t page = page_size();
  const std::uintptr_t from = begin / page * page, to = (end + page - 1) / page * page;
  auto region = register_(reinterpret_cast<void*>(from), to - from);
  if (!region.ok()) return nullptr;  // The caller knows another way.
  kept_.push_front({segment, from, to, *region});
  return *region;
}

/// Those whose segment is gone or replaced, and the one that was not used for longest when there are too
/// many.
template <class Region>
void Registrations<Region>::drop_stale() {
  kept_.remove_if([](const Kept& kept) {
    const auto now = find_segment(reinterpret_cast<const void*>(kept.begin), kept.end - kept.begin);
    return !now || now->segment != kept.segment.segment;
  });
  if (kept_.size() >= kKeptRegistrations) kept_.pop_back();
}

}  // namespace lockstep::internal
