// encode() of data.hpp: a whole number as an element of any type, by arithmetic that is not the library's.
#include <cmath>
#include <cstring>

#include "bench/data.hpp"

namespace lockstep::bench {
namespace {

// A binary floating-point format of at most 16 bits: sign, exponent, mantissa.
struct SmallFloat {
  int exponent_bits, mantissa_bits;
};

std::uint32_t encode_small(SmallFloat format, std::int64_t value) {
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(static_cast<double>(value)), &exponent);  // in [0.5, 1)
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<std::uint32_t>((fraction * 2 - 1) * (1 << format.mantissa_bits));
  const auto sign = static_cast<std::uint32_t>(value < 0) << (format.exponent_bits + format.mantissa_bits);
  return sign | static_cast<std::uint32_t>(exponent - 1 + bias) << format.mantissa_bits | mantissa;
}

template <typename T>
void store(T value, std::byte* element) {
  std::memcpy(element, &value, sizeof value);
}
template <typename T>
void store_complex(std::int64_t value, std::byte* element) {
  store(static_cast<T>(value), element);
  store(T{0}, element + sizeof(T));
}

}  // namespace

void encode(DataType type, std::int64_t value, std::byte* element) {
  switch (type) {
    case DataType::f16:
      return store(static_cast<std::uint16_t>(encode_small({5, 10}, value)), element);
    case DataType::bf16:
      return store(static_cast<std::uint16_t>(encode_small({8, 7}, value)), element);
    case DataType::f8e4m3:
      return store(static_cast<std::uint8_t>(encode_small({4, 3}, value)), element);
    case DataType::f8e5m2:
      return store(static_cast<std::uint8_t>(encode_small({5, 2}, value)), element);
    case DataType::f32:
      return store(static_cast<float>(value), element);
    case DataType::f64:
      return store(static_cast<double>(value), element);
    case DataType::i8:
    case DataType::u8:
      return store(static_cast<std::uint8_t>(value), element);
    case DataType::i32:
    case DataType::u32:
      return store(static_cast<std::uint32_t>(value), element);
    case DataType::i64:
    case DataType::u64:
      return store(value, element);
    case DataType::boolean:
      return store(static_cast<std::uint8_t>(value != 0), element);
    case DataType::complex64:
      return store_complex<float>(value, element);
    case DataType::complex128:
      return store_complex<double>(value, element);
  }
}

std::int64_t exact_limit(DataType type) {
  switch (type) {
    case DataType::f8e5m2:
      return 8;
    case DataType::f8e4m3:
      return 16;
    case DataType::i8:
      return 127;
    case DataType::u8:
      return 255;
    case DataType::bf16:
      return 256;
    case DataType::f16:
      return 2048;
    default:
      return 1 << 24;  // f32; the wider types have no need of more
  }
}

}  // namespace lockstep::bench
