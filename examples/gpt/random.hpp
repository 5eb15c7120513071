// Random numbers that are the same on every machine and standard library.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "examples/gpt/tensor.hpp"

namespace gpt {

/// A multiplicative congruential generator (Lehmer; the multiplier is Steele and Vigna's, 2021).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(2 * seed + 1) {
    for (int i = 0; i < kWarmUp; ++i) unit();
  }

  /// Uniform in [0, 1).
  float unit() {
    state_ *= 0xd1342543de82ef95u;
    return static_cast<float>(state_ >> 40) / static_cast<float>(1u << 24);
  }
  /// Uniform in [0, n).
  std::size_t below(std::size_t n) {
    state_ *= 0xd1342543de82ef95u;
    return static_cast<std::size_t>(state_ >> 32) % n;
  }
  /// Uniform with mean 0 and this standard deviation.
  void fill(Floats& values, float deviation) {
    const float limit = deviation * std::sqrt(3.0f);
    for (float& v : values) v = (2.0f * unit() - 1.0f) * limit;
  }

 private:
  static constexpr int kWarmUp = 8;  // Small seeds differ in few bits; these spread.
  std::uint64_t state_;
};

}  // namespace gpt
