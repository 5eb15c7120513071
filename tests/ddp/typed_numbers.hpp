// Elements of tensors of any type that gradients have, as numbers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/float16.hpp"
#include "lockstep/types.hpp"

namespace lockstep {

/// `value` as element `e` of a tensor of `type`; complex numbers have it twice.
inline void store(DataType type, void* data, std::size_t e, double value) {
  const auto single = static_cast<float>(value);
  switch (type) {
    case DataType::f16:
      static_cast<std::uint16_t*>(data)[e] = internal::F16::from_float(single);
      break;
    case DataType::bf16:
      static_cast<std::uint16_t*>(data)[e] = internal::BF16::from_float(single);
      break;
    case DataType::f8e4m3:
      static_cast<std::uint8_t*>(data)[e] = internal::F8E4M3::from_float(single);
      break;
    case DataType::f64:
      static_cast<double*>(data)[e] = value;
      break;
    case DataType::complex64:
      static_cast<float*>(data)[2 * e] = static_cast<float*>(data)[2 * e + 1] = single;
      break;
    default:
      static_cast<float*>(data)[e] = single;
  }
}

inline double load(DataType type, const void* data, std::size_t e) {
  switch (type) {
    case DataType::f16:
      return internal::F16::to_float(static_cast<const std::uint16_t*>(data)[e]);
    case DataType::bf16:
      return internal::BF16::to_float(static_cast<const std::uint16_t*>(data)[e]);
    case DataType::f8e4m3:
      return internal::F8E4M3::to_float(static_cast<const std::uint8_t*>(data)[e]);
    case DataType::f64:
      return static_cast<const double*>(data)[e];
    case DataType::complex64:
      return static_cast<const float*>(data)[2 * e + 1];
    default:
      return static_cast<const float*>(data)[e];
  }
}

}  // namespace lockstep
