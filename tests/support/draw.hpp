// Numbers that look random, and that all ranks draw alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace lockstep::testing {

/// A number below `n` that follows from the words `of`.
inline std::size_t draw(std::size_t n, std::initializer_list<std::size_t> of) {
  std::uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const std::uint64_t word : of) {
    hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
    hash ^= hash >> 29;
    hash *= 0x94d049bb133111ebu;
    hash ^= hash >> 32;
  }
  return static_cast<std::size_t>(hash % n);
}

/// What a script of random events draws from.
struct Draws {
  std::size_t seed = 0;

  /// `what` numbers the draws.
  std::size_t draw_of(std::size_t n, std::size_t what, std::size_t a = 0, std::size_t b = 0,
                      std::size_t c = 0) const {
    return draw(n, {seed, what, a, b, c});
  }
};

}  // namespace lockstep::testing
