// Copies, past the caches when they are too large to be read from there again.
#include "lib/reduce/copy.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "hwy/cache_control.h"
#include "lib/reduce/reduce.hpp"
#include "lib/reduce/simd.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/reduce/copy.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Stores of whole vectors; past the caches, at an aligned destination only.
template <bool kPastCaches, class D, class V>
HWY_INLINE void store_vector(V v, D d, std::uint8_t* to) {
  if constexpr (kPastCaches) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

/// Whole vectors, four at a time as long as there are four. Returns the bytes copied.
template <bool kPastCaches>
HWY_INLINE std::size_t copy_vectors(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + 4 * lanes <= bytes; i += 4 * lanes) {
    const auto v0 = hn::LoadU(d, from + i), v1 = hn::LoadU(d, from + i + lanes);
    const auto v2 = hn::LoadU(d, from + i + 2 * lanes), v3 = hn::LoadU(d, from + i + 3 * lanes);
    store_vector<kPastCaches>(v0, d, to + i);
    store_vector<kPastCaches>(v1, d, to + i + lanes);
    store_vector<kPastCaches>(v2, d, to + i + 2 * lanes);
    store_vector<kPastCaches>(v3, d, to + i + 3 * lanes);
  }
  for (; i + lanes <= bytes; i += lanes) store_vector<kPastCaches>(hn::LoadU(d, from + i), d, to + i);
  return i;
}

/// At least one vector long.
void stream_bytes(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<std::uint8_t>());
  const std::size_t head = (lanes - reinterpret_cast<std::uintptr_t>(to) % lanes) % lanes;
  std::memcpy(to, from, head);
  const std::size_t done = head + copy_vectors<true>(to + head, from + head, bytes - head);
  std::memcpy(to + done, from + done, bytes - done);
  hwy::FlushStream();  // A flag that is set after the copy must not overtake it.
}

/// At least one vector long. The ranges do not overlap.
void store_bytes(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t last = bytes - hn::Lanes(d);
  if (copy_vectors<false>(to, from, bytes) < bytes) hn::StoreU(hn::LoadU(d, from + last), d, to + last);
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace lockstep::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::internal {
HWY_EXPORT(stream_bytes);
HWY_EXPORT(store_bytes);
HWY_EXPORT(target_name);
namespace {

/// Below this a copy's destination is likely to be read from cache soon, whatever the machine says about its
/// caches.
constexpr std::size_t kSmallestNontemporal = 4 << 20;
/// Pieces of a large copy below this gain less than the fence at their end costs; also more than the longest
/// vector.
constexpr std::size_t kSmallestStreamed = 2 << 10;

/// Bytes of the last level cache that a core can use, or 0 when nobody knows. The kernel tells of one cache;
/// sysconf adds up those of all the chip's parts, which no core can use together (384 MiB for 32 on a 96-core
/// EPYC).
std::size_t last_level_cache() {
  std::size_t kibibytes = 0;
  if (std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kibibytes) return kibibytes << 10;
  const long total = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return total > 0 ? static_cast<std::size_t>(total) : 0;
}

/// Smaller copies the C library does with vectors anyway; also more than the longest vector.
constexpr std::size_t kSmallestStringCopy = 2 << 10;

/// Whether `rep movsb` would be slow (see copy_bytes): as the processor sees it, by the addresses within
/// their pages, each load seems to read what was just stored.
bool slow_as_string(const void* to, const void* from) {
  constexpr std::uintptr_t kPage = 4096, kBehind = 32;
  const std::uintptr_t behind =
      (reinterpret_cast<std::uintptr_t>(to) - reinterpret_cast<std::uintptr_t>(from)) % kPage;
  return behind > 0 && behind < kBehind;
}

void copy_by_vectors(void* to, const void* from, std::size_t bytes) {
  HWY_DYNAMIC_DISPATCH(store_bytes)
  (static_cast<std::uint8_t*>(to), static_cast<const std::uint8_t*>(from), bytes);
}

}  // namespace

std::size_t nontemporal_threshold() noexcept {
  static const std::size_t threshold = std::max(kSmallestNontemporal, last_level_cache() / 4 * 3);
  return threshold;
}

void copy_bytes(void* destination, const void* source, std::size_t bytes, bool past_caches) noexcept {
  if (destination == source || bytes == 0) return;
  if (bytes >= nontemporal_threshold() || (past_caches && bytes >= kSmallestStreamed)) {
    HWY_DYNAMIC_DISPATCH(stream_bytes)
    (static_cast<std::uint8_t*>(destination), static_cast<const std::uint8_t*>(source), bytes);
  } else if (bytes >= kSmallestStringCopy && slow_as_string(destination, source)) {
    copy_by_vectors(destination, source, bytes);
  } else {
    std::memcpy(destination, source, bytes);
  }
}

const char* simd_target() noexcept { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace lockstep::internal
#endif
