// Small floats against a definition that shares nothing with the code: values are built with ldexp from the
// fields, and every boundary between two neighbouring values is approached from both sides.
#include "lib/base/float16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::internal {
namespace {

struct Layout {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};

/// The value of a bit pattern by the definition of the format.
double define(Layout layout, unsigned pattern) {
  const unsigned mantissa = pattern & ((1u << layout.mantissa_bits) - 1);
  const unsigned exponent = (pattern >> layout.mantissa_bits) & ((1u << layout.exponent_bits) - 1);
  const double sign = (pattern >> (layout.exponent_bits + layout.mantissa_bits)) & 1 ? -1 : 1;
  const unsigned top = (1u << layout.exponent_bits) - 1;
  const int bias = static_cast<int>(top >> 1);
  if (layout.has_infinity && exponent == top) return mantissa == 0 ? sign * INFINITY : NAN;
  if (!layout.has_infinity && exponent == top && mantissa == (1u << layout.mantissa_bits) - 1) return NAN;
  const double fraction = std::ldexp(mantissa, -layout.mantissa_bits);
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias);
  return sign * std::ldexp(1 + fraction, static_cast<int>(exponent) - bias);
}

template <typename Float>
void check_widening(Layout layout) {
  const unsigned patterns = 1u << (1 + layout.exponent_bits + layout.mantissa_bits);
  for (unsigned p = 0; p < patterns; ++p) {
    const double expected = define(layout, p);
    const float value = Float::to_float(static_cast<typename Float::Bits>(p));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << p;
    } else {
      ASSERT_EQ(value, expected) << p;
    }
    ASSERT_EQ(std::signbit(value), (p & (patterns / 2)) != 0) << p;
  }
}

template <typename Float>
void expect_narrow(float value, unsigned expected) {
  const unsigned sign = 1u << (sizeof(typename Float::Bits) * 8 - 1);
  ASSERT_EQ(Float::from_float(value), expected) << value;
  ASSERT_EQ(Float::from_float(-value), expected | sign) << -value;
}

/// Every finite value is exact, every midpoint goes to the even neighbour, and one f32 step beside it to the
/// nearer one.
template <typename Float>
void check_narrowing(Layout layout) {
  unsigned largest = 0;
  while (std::isfinite(define(layout, largest + 1))) ++largest;
  for (unsigned p = 0; p <= largest; ++p) {
    // The next value; past the largest one, where it would be if the exponent range went on.
    const double here = define(layout, p);
    const double next = p < largest ? define(layout, p + 1) : here + (here - define(layout, p - 1));
    const float middle = static_cast<float>((here + next) / 2);
    expect_narrow<Float>(static_cast<float>(here), p);
    expect_narrow<Float>(middle, p % 2 == 0 ? p : p + 1);
    expect_narrow<Float>(std::nextafter(middle, 0.0f), p);
    expect_narrow<Float>(std::nextafter(middle, INFINITY), p + 1);
  }
  expect_narrow<Float>(std::numeric_limits<float>::denorm_min(), 0);
  expect_narrow<Float>(std::numeric_limits<float>::max(), largest + 1);
  expect_narrow<Float>(INFINITY, largest + 1);
  EXPECT_TRUE(std::isnan(Float::to_float(Float::from_float(NAN))));
  EXPECT_TRUE(std::isnan(Float::to_float(Float::from_float(std::bit_cast<float>(0x7f800001u)))));
}

TEST(SmallFloat, F16) {
  check_widening<F16>({5, 10, true});
  check_narrowing<F16>({5, 10, true});
  EXPECT_EQ(F16::to_float(0x7bff), 65504.0f);
}

TEST(SmallFloat, BF16) {
  check_widening<BF16>({8, 7, true});
  check_narrowing<BF16>({8, 7, true});
}

TEST(SmallFloat, F8E4M3) {
  check_widening<F8E4M3>({4, 3, false});
  check_narrowing<F8E4M3>({4, 3, false});
  EXPECT_EQ(F8E4M3::to_float(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(F8E4M3::to_float(F8E4M3::from_float(480.0f)))) << "no infinity, no saturation";
}

TEST(SmallFloat, F8E5M2) {
  check_widening<F8E5M2>({5, 2, true});
  check_narrowing<F8E5M2>({5, 2, true});
  EXPECT_EQ(F8E5M2::to_float(0x7b), 57344.0f);
  EXPECT_EQ(F8E5M2::to_float(F8E5M2::from_float(70000.0f)), INFINITY);
}

}  // namespace
}  // namespace lockstep::internal
