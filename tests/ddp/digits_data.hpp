// The digits, and the check that replicas are equal, for tests that train.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "examples/digits/dataset.hpp"
#include "lockstep/lockstep.hpp"

namespace lockstep::testing {

inline constexpr std::size_t kDigitsBatch = 60;  ///< Over all ranks; dealt evenly to 1, 2, 3 or 4.
/// One held-out sample of 359 is 0.28 points: a mean is steadier.
inline constexpr std::uint64_t kDigitsSeeds = 3;

inline const digits::Split& digits_data() {
  static const digits::Split split = digits::load_digits(DIGITS_DATA);
  return split;
}

/// Every rank has the bits of rank 0.
inline void expect_equal_values(Communicator& communicator, std::span<const Parameter> parameters) {
  for (const Parameter& parameter : parameters) {
    std::size_t bytes = size_of(parameter.type);
    for (const std::size_t dimension : parameter.shape) bytes *= dimension;
    if (bytes == 0) continue;
    std::vector<std::byte> first(bytes);
    std::memcpy(first.data(), parameter.value, bytes);
    communicator.broadcast(first.data(), bytes, DataType::u8, 0);
    EXPECT_EQ(std::memcmp(first.data(), parameter.value, bytes), 0)
        << parameter.name << " differs on rank " << communicator.rank();
  }
}

}  // namespace lockstep::testing
