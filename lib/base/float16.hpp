// Scalar conversions between f32 and the small floats: f16, bf16 and the two OCP 8-bit formats.
// Rounding is to nearest, ties to even. Overflow gives infinity, or NaN in f8e4m3, which has none (the
// non-saturating mode of the OCP 8-bit floating point specification 1.0, as in PyTorch). NaN stays NaN with
// its sign and loses its payload.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep::internal {

/// A binary float of at most 16 bits, held in the low bits of an integer. Subnormals are honoured.
template <typename BitsType, int kExponentBits, int kMantissaBits, bool kHasInfinity>
struct SmallFloat {
  using Bits = BitsType;
  static constexpr int kMantissaWidth = kMantissaBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr std::uint32_t kSign = 1u << (kExponentBits + kMantissaBits);
  static constexpr std::uint32_t kTopExponent = ((1u << kExponentBits) - 1) << kMantissaBits;
  /// Without infinities only the very last pattern is NaN, and it follows the largest finite number directly.
  static constexpr std::uint32_t kOverflow = kHasInfinity ? kTopExponent : kSign - 1;
  static constexpr std::uint32_t kNan = kHasInfinity ? kTopExponent | 1u << (kMantissaBits - 1) : kSign - 1;

  static constexpr Bits from_float(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 31 ? kSign : 0;
    const std::uint32_t magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return static_cast<Bits>(sign | kNan);
    // f32's exponent field of this value and of our smallest normal number; below it the significand shifts
    // further right.
    constexpr int kSmallestNormal = 127 - kBias + 1;
    const bool f32_normal = magnitude >= 0x00800000;
    const int exponent = f32_normal ? static_cast<int>(magnitude >> 23) : 1;
    const std::uint32_t significand = (magnitude & 0x007fffff) | (f32_normal ? 0x00800000u : 0u);
    const int below = exponent < kSmallestNormal ? kSmallestNormal - exponent : 0;
    const int shift = 23 - kMantissaBits + below;
    if (shift > 24) return static_cast<Bits>(sign);  // Less than half of the smallest subnormal.
    const std::uint32_t lowest_kept = (significand >> shift) & 1;
    const std::uint32_t rounded = (significand + (1u << (shift - 1)) - 1 + lowest_kept) >> shift;
    // The hidden bit of a normal number, or the carry of a rounded-up one, adds one to the exponent field.
    const std::uint32_t field = below > 0 ? 0 : static_cast<std::uint32_t>(exponent - kSmallestNormal);
    const std::uint32_t result = (field << kMantissaBits) + rounded;
    return static_cast<Bits>(sign | (result < kOverflow ? result : kOverflow));
  }

  static constexpr float to_float(Bits stored) noexcept {
    const std::uint32_t bits = stored;
    const std::uint32_t sign = bits & kSign ? 0x80000000 : 0;
    if constexpr (kExponentBits == 8) return std::bit_cast<float>(bits << (23 - kMantissaBits));
    const std::uint32_t magnitude = bits & (kSign - 1);
    if (kHasInfinity && magnitude == kTopExponent) return std::bit_cast<float>(sign | 0x7f800000);
    if (magnitude >= (kHasInfinity ? kTopExponent : kNan)) return std::bit_cast<float>(sign | 0x7fc00000);
    constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - kBias) << 23;
    const std::uint32_t aligned = magnitude << (23 - kMantissaBits);
    if (magnitude >= (1u << kMantissaBits)) return std::bit_cast<float>(sign | (aligned + kRebias));
    // Subnormal: give it the smallest normal's exponent, hidden bit included, then take the hidden bit's
    // value away. Exact.
    const float hidden = std::bit_cast<float>(kRebias + (1u << 23));
    const float value = std::bit_cast<float>((kRebias + (1u << 23)) | aligned) - hidden;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
};

using F16 = SmallFloat<std::uint16_t, 5, 10, true>;
using BF16 = SmallFloat<std::uint16_t, 8, 7, true>;
using F8E4M3 = SmallFloat<std::uint8_t, 4, 3, false>;
using F8E5M2 = SmallFloat<std::uint8_t, 5, 2, true>;

}  // namespace lockstep::internal
