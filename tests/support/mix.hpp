// Numbers that look random, and that every process makes alike of the same ones.
#pragma once

#include <cstdint>

namespace lockstep::internal::testing {

/// The finisher of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
constexpr std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace lockstep::internal::testing
