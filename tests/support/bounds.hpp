// Promised bounds in tests. A loaded machine must not fail the suite, so it asserts ten times the promise;
// with STRICT_BOUNDS=1 in the environment (tools/test --bounds) the promise itself.
#pragma once

#include <chrono>
#include <cstdlib>

namespace lockstep::testing {

inline bool strict_bounds() { return std::getenv("STRICT_BOUNDS") != nullptr; }

inline std::chrono::nanoseconds allowed(std::chrono::nanoseconds promised) {
  return strict_bounds() ? promised : 10 * promised;
}

}  // namespace lockstep::testing
