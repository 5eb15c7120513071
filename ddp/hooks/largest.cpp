#include "ddp/hooks/largest.hpp"

#include <bit>
#include <vector>

namespace lockstep::internal {
namespace {

/// The magnitudes of f32 order as these integers do.
std::uint32_t magnitude(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fffffffu; }

/// The smallest magnitude that is taken, and how many of the elements that have exactly it.
struct Threshold {
  std::uint32_t value = 0;
  std::size_t ties = 0;
};

/// Radix selection: each pass counts the next `kPassBits` bits of the elements that share the bits found so
/// far.
Threshold find_threshold(std::span<const float> values, std::size_t wanted) {
  constexpr int kMagnitudeBits = 31;
  constexpr int kPassBits = 11;  // 2048 counters fit in half of a first-level cache.
  std::uint32_t known = 0;
  for (int left = kMagnitudeBits; left > 0;) {
    const int bits = left < kPassBits ? left : kPassBits;
    const int shift = left - bits;
    std::vector<std::size_t> counts(std::size_t{1} << bits);
    for (const float value : values) {
      const std::uint32_t m = magnitude(value);
      if (m >> left == known >> left) ++counts[(m >> shift) & ((1u << bits) - 1)];
    }
    std::size_t digit = counts.size() - 1;
    while (counts[digit] < wanted) wanted -= counts[digit--];
    known |= static_cast<std::uint32_t>(digit) << shift;
    left = shift;
  }
  return {known, wanted};
}

}  // namespace

void find_largest(std::span<const float> values, std::span<std::uint32_t> indices) {
  if (indices.empty()) return;
  const Threshold threshold = find_threshold(values, indices.size());
  std::size_t ties = threshold.ties, found = 0;
  for (std::size_t i = 0; found < indices.size(); ++i) {
    const std::uint32_t m = magnitude(values[i]);
    if (m < threshold.value) continue;
    if (m == threshold.value) {
      if (ties == 0) continue;
      --ties;
    }
    indices[found++] = static_cast<std::uint32_t>(i);
  }
}

}  // namespace lockstep::internal
