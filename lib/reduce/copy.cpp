// Copies and scaled copies.
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "lib/base/float16.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {
namespace {

/// Below this a copy's destination is likely to be read from cache soon, whatever the machine says about its
/// caches.
constexpr std::size_t kSmallestNontemporal = 4 << 20;

template <typename T>
void scale(const void* input, void* output, std::size_t count, double factor) {
  for (std::size_t i = 0; i < count; ++i)
    static_cast<T*>(output)[i] = static_cast<const T*>(input)[i] * static_cast<T>(factor);
}

template <typename Float>
void scale_small(const void* input, void* output, std::size_t count, double factor) {
  using Bits = typename Float::Bits;
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<Bits*>(output)[i] =
        Float::from_float(Float::to_float(static_cast<const Bits*>(input)[i]) * static_cast<float>(factor));
  }
}

}  // namespace

void scale_copy(DataType type, const void* input, void* output, std::size_t count, double factor) {
  switch (type) {
    case DataType::f16:
      return scale_small<F16>(input, output, count, factor);
    case DataType::bf16:
      return scale_small<BF16>(input, output, count, factor);
    case DataType::f8e4m3:
      return scale_small<F8E4M3>(input, output, count, factor);
    case DataType::f8e5m2:
      return scale_small<F8E5M2>(input, output, count, factor);
    case DataType::f32:
      return scale<float>(input, output, count, factor);
    case DataType::f64:
      return scale<double>(input, output, count, factor);
    default:
      assert(false && "callers ask check_reduction(type, premul_sum) first");
  }
}

std::size_t nontemporal_threshold() noexcept {
  static const std::size_t threshold = [] {
    const long last_level = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return std::max(kSmallestNontemporal, last_level > 0 ? static_cast<std::size_t>(last_level) / 4 * 3 : 0);
  }();
  return threshold;
}

void copy_bytes(void* destination, const void* source, std::size_t bytes) noexcept {
  if (destination != source && bytes > 0) std::memcpy(destination, source, bytes);
}

const char* simd_target() noexcept { return "none"; }

}  // namespace lockstep::internal
