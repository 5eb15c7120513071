// Types of a small range, and buffers full of one number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/base/float16.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal {

struct SmallType {
  DataType type;
  std::size_t bytes;
  std::uint32_t largest;  ///< The largest power of two: twice as much is infinite, or NaN.
};
inline constexpr SmallType kSmallTypes[] = {{DataType::f16, 2, F16::from_float(0x1p15f)},
                                            {DataType::f8e4m3, 1, F8E4M3::from_float(0x1p8f)},
                                            {DataType::f8e5m2, 1, F8E5M2::from_float(0x1p15f)}};

/// So many elements, all of them the largest power of two.
inline std::vector<std::byte> largest_numbers(const SmallType& small, std::size_t elements) {
  std::vector<std::byte> result(elements * small.bytes);
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = static_cast<std::byte>(small.largest >> (8 * (i % small.bytes)));
  return result;
}

}  // namespace lockstep::internal
