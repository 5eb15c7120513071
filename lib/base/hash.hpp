// 64-bit FNV-1a, for fingerprints of calls and tables. Detects accidents, resists no attacker.
// Constants: https://datatracker.ietf.org/doc/html/draft-eastlake-fnv
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::internal {

inline constexpr std::uint64_t kFnvOffset = 0xcbf29ce484222325;
inline constexpr std::uint64_t kFnvPrime = 0x00000100000001b3;

/// The hash of `bytes` continued from `seed`: fnv1a(b, fnv1a(a)) is the hash of a followed by b.
constexpr std::uint64_t fnv1a(std::string_view bytes, std::uint64_t seed = kFnvOffset) noexcept {
  std::uint64_t hash = seed;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * kFnvPrime;
  return hash;
}

/// Appends an integer, as its eight bytes in little-endian order whatever the machine.
constexpr std::uint64_t hash_combine(std::uint64_t seed, std::uint64_t value) noexcept {
  std::uint64_t hash = seed;
  for (int shift = 0; shift < 64; shift += 8) hash = (hash ^ ((value >> shift) & 0xff)) * kFnvPrime;
  return hash;
}

}  // namespace lockstep::internal
