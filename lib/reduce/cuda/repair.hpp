// GPUs narrow f32 to the 8-bit floats with saturation; lockstep overflows (lib/base/float16.hpp).
#pragma once

#include <bit>
#include <cstdint>

#include "lib/base/both.hpp"
#include "lib/base/float16.hpp"

namespace lockstep::internal::cuda {

/// What overflows when rounded to nearest: the largest finite number and half a unit of its last place. A tie
/// goes to the even neighbour, which is the largest number in e4m3 and infinity in e5m2.
template <typename Float>
struct Overflow;
template <>
struct Overflow<F8E4M3> {
  static LOCKSTEP_BOTH bool stays_finite(float magnitude) { return magnitude <= 464.0f; }
};
template <>
struct Overflow<F8E5M2> {
  static LOCKSTEP_BOTH bool stays_finite(float magnitude) { return magnitude < 61440.0f; }
};

/// `saturated` is x rounded to nearest, at most the largest finite number.
template <typename Float>
LOCKSTEP_BOTH std::uint8_t repair_saturated(float x, std::uint8_t saturated) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const float magnitude = std::bit_cast<float>(bits & 0x7fffffff);
  if (Overflow<Float>::stays_finite(magnitude)) return saturated;
  const std::uint32_t sign = bits >> 31 ? Float::kSign : 0;
  const bool nan = magnitude != magnitude;
  return static_cast<std::uint8_t>(sign | (nan ? Float::kNan : Float::kOverflow));
}

}  // namespace lockstep::internal::cuda
