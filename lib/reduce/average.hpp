// How an average is divided where sums of some of the ranks are stored on their way, as over links.
#pragma once

#include <bit>

#include "lockstep/types.hpp"

namespace lockstep::internal {

/// Each input is multiplied by `factor`, and what they add up to is divided by `divisor`.
struct AverageSteps {
  double factor = 1, divisor = 1;
};

/// Sums of f16 and of 8-bit floats leave their range where no input and no average does. So their inputs are
/// made smaller first, by a power of two: every sum then is within the range, and normal numbers keep all
/// their digits. What is left to divide by is more than 1/2, and at most 1. Of two ranks the sum is divided
/// before it is stored.
inline AverageSteps average_steps(DataType type, int world) {
  const double ranks = world;
  const bool overflows = type == DataType::f16 || type == DataType::f8e4m3 || type == DataType::f8e5m2;
  if (!overflows || world <= 2) return {1, ranks};
  const double power = std::bit_ceil(static_cast<unsigned>(world));
  return {1 / power, ranks / power};
}

}  // namespace lockstep::internal
