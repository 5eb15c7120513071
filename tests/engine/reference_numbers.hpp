// Elements of every type as the numbers that the reference computes with: doubles, complex doubles, or 64-bit
// integers; and back to the bytes of a buffer.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lib/base/element_types.hpp"
#include "lib/base/float16.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal {

using Complex = std::complex<double>;

inline bool is_float(DataType type) {
  return type <= DataType::f64 || type == DataType::f8e4m3 || type == DataType::f8e5m2;
}
inline bool is_unsigned(DataType type) {
  return type == DataType::u8 || type == DataType::u32 || type == DataType::u64 || type == DataType::boolean;
}

// Calls visit(T{}) with the type in which the elements are combined: double, Complex, or std::int64_t
// (wrapping).
template <typename Visit>
auto with_number(DataType type, Visit visit) {
  if (is_float(type)) return visit(double{});
  if (is_complex(type)) return visit(Complex{});
  return visit(std::int64_t{});
}
template <typename T>
inline constexpr bool kIsComplex = false;
template <typename Part>
inline constexpr bool kIsComplex<std::complex<Part>> = true;

// Integers up to this magnitude are exact in the type, and so are the sums that stay below it.
inline std::int64_t exact_limit(DataType type) {
  switch (type) {
    case DataType::f16:
      return std::int64_t{1} << 11;
    case DataType::bf16:
      return std::int64_t{1} << 8;
    case DataType::f8e4m3:
      return 16;
    case DataType::f8e5m2:
      return 8;
    case DataType::boolean:
      return 1;
    case DataType::f32:
    case DataType::complex64:
      return std::int64_t{1} << 24;
    case DataType::f64:
    case DataType::complex128:
      return std::int64_t{1} << 53;
    case DataType::i8:
    case DataType::u8:
      return 127;
    case DataType::i32:
    case DataType::u32:
      return 0x7fffffff;
    default:
      return std::int64_t{1} << 62;
  }
}

// Calls visit(T{}) with the C++ type that stores one element; small floats as their bits.
template <typename Visit>
auto with_storage(DataType type, Visit visit) {
  switch (type) {
    case DataType::f16:
    case DataType::bf16:
      return visit(std::uint16_t{});
    case DataType::f32:
      return visit(float{});
    case DataType::f64:
      return visit(double{});
    case DataType::i8:
      return visit(std::int8_t{});
    case DataType::u8:
    case DataType::boolean:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
      return visit(std::uint8_t{});
    case DataType::complex64:
      return visit(std::complex<float>{});
    case DataType::complex128:
      return visit(std::complex<double>{});
    case DataType::i32:
      return visit(std::int32_t{});
    case DataType::u32:
      return visit(std::uint32_t{});
    case DataType::i64:
      return visit(std::int64_t{});
    default:
      return visit(std::uint64_t{});
  }
}

template <typename Stored, typename Number>
Stored stored_as(DataType type, Number number) {
  if constexpr (kIsComplex<Stored> != kIsComplex<Number>) {
    return {};  // Never asked for.
  } else if constexpr (kIsComplex<Number>) {
    using Part = typename Stored::value_type;
    return {static_cast<Part>(number.real()), static_cast<Part>(number.imag())};
  } else {
    const auto small = static_cast<float>(number);
    if (type == DataType::f16) return static_cast<Stored>(F16::from_float(small));
    if (type == DataType::bf16) return static_cast<Stored>(BF16::from_float(small));
    if (type == DataType::f8e4m3) return static_cast<Stored>(F8E4M3::from_float(small));
    if (type == DataType::f8e5m2) return static_cast<Stored>(F8E5M2::from_float(small));
    return static_cast<Stored>(number);
  }
}

template <typename Number, typename Stored>
Number number_of(DataType type, Stored stored) {
  if constexpr (kIsComplex<Stored> != kIsComplex<Number>) {
    return {};
  } else if constexpr (kIsComplex<Number>) {
    return {stored.real(), stored.imag()};
  } else {
    const auto bits = static_cast<std::uint16_t>(static_cast<std::uint64_t>(stored));
    if (type == DataType::f16) return static_cast<Number>(F16::to_float(bits));
    if (type == DataType::bf16) return static_cast<Number>(BF16::to_float(bits));
    if (type == DataType::f8e4m3)
      return static_cast<Number>(F8E4M3::to_float(static_cast<std::uint8_t>(bits)));
    if (type == DataType::f8e5m2)
      return static_cast<Number>(F8E5M2::to_float(static_cast<std::uint8_t>(bits)));
    return static_cast<Number>(stored);
  }
}

// Writes numbers[first] .. numbers[first + count - 1] as elements to `into`, and returns where they end.
template <typename Numbers>
std::byte* encode(DataType type, const Numbers& numbers, std::size_t first, std::size_t count,
                  std::byte* into) {
  with_storage(type, [&](auto stored) {
    for (std::size_t i = first; i < first + count; ++i) {
      stored = stored_as<decltype(stored)>(type, numbers[i]);
      std::memcpy(into, &stored, sizeof stored);
      into += sizeof stored;
    }
  });
  return into;
}

template <typename Number>
Number decode(DataType type, const std::byte* from) {
  return with_storage(type, [&](auto stored) {
    std::memcpy(&stored, from, sizeof stored);
    return number_of<Number>(type, stored);
  });
}

}  // namespace lockstep::internal
