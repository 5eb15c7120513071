// What a reduction must give, element by element, by the definitions in lockstep/types.hpp: sums and products
// of floats up to f32 are computed in double and rounded to f32 at each step (which is exact), integers in
// 128 bits and cut to their size.
#pragma once

#include <cmath>
#include <complex>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "lib/base/float16.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal::testing {

using Bytes = std::vector<std::byte>;
using Generator = std::mt19937_64;

template <typename T>
inline constexpr bool kIsComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

inline bool is_small_float(DataType type) {
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f8e4m3 ||
         type == DataType::f8e5m2;
}

/// Calls `body` with a value of the C++ type in which a type's elements are stored.
template <typename Body>
auto with_type(DataType type, Body body) {
  switch (type) {
    case DataType::f16:
    case DataType::bf16:
      return body(std::uint16_t{});
    case DataType::u8:
    case DataType::boolean:
    case DataType::f8e4m3:
    case DataType::f8e5m2:
      return body(std::uint8_t{});
    case DataType::f32:
      return body(float{});
    case DataType::f64:
      return body(double{});
    case DataType::i8:
      return body(std::int8_t{});
    case DataType::i32:
      return body(std::int32_t{});
    case DataType::u32:
      return body(std::uint32_t{});
    case DataType::i64:
      return body(std::int64_t{});
    case DataType::u64:
      return body(std::uint64_t{});
    case DataType::complex64:
      return body(std::complex<float>{});
    case DataType::complex128:
      return body(std::complex<double>{});
  }
  std::abort();
}

inline float widen(DataType type, std::uint16_t bits) {
  switch (type) {
    case DataType::f16:
      return F16::to_float(bits);
    case DataType::bf16:
      return BF16::to_float(bits);
    case DataType::f8e4m3:
      return F8E4M3::to_float(static_cast<std::uint8_t>(bits));
    default:
      return F8E5M2::to_float(static_cast<std::uint8_t>(bits));
  }
}

inline std::uint16_t narrow(DataType type, float value) {
  switch (type) {
    case DataType::f16:
      return F16::from_float(value);
    case DataType::bf16:
      return BF16::from_float(value);
    case DataType::f8e4m3:
      return F8E4M3::from_float(value);
    default:
      return F8E5M2::from_float(value);
  }
}

inline double random_float(Generator& generator, bool specials) {
  if (specials && generator() % 8 == 0) {
    constexpr double kSpecials[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-40, -3e-6, 6e4, 3e38};
    return kSpecials[generator() % std::size(kSpecials)];
  }
  return std::uniform_real_distribution<double>(-2, 2)(generator);
}

/// Random elements; with `specials`, floats hold NaN, infinities, zeros, subnormals and very large numbers
/// among others.
inline Bytes random_elements(DataType type, std::size_t count, Generator& generator, bool specials) {
  Bytes bytes(count * size_of(type));
  with_type(type, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      T value{};
      if constexpr (kIsComplex<T>) {
        using Part = typename T::value_type;
        value = T(static_cast<Part>(random_float(generator, false)),
                  static_cast<Part>(random_float(generator, false)));
      } else if constexpr (std::is_floating_point_v<T>) {
        value = static_cast<T>(random_float(generator, specials));
      } else if (is_small_float(type)) {
        value = static_cast<T>(narrow(type, static_cast<float>(random_float(generator, specials))));
      } else {
        value = static_cast<T>(type == DataType::boolean ? generator() % 2 : generator());
      }
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
  });
  return bytes;
}

template <typename T>
T combine_floats(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b);
    case ReduceOp::max:
      return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b);
    default:
      return a + b;
  }
}

template <typename T>
T combine_integers(ReduceOp op, T a, T b) {
  using Wide = unsigned __int128;
  switch (op) {
    case ReduceOp::prod:
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case ReduceOp::min:
      return a < b ? a : b;
    case ReduceOp::max:
      return a < b ? b : a;
    case ReduceOp::band:
      return static_cast<T>(a & b);
    case ReduceOp::bor:
      return static_cast<T>(a | b);
    case ReduceOp::bxor:
      return static_cast<T>(a ^ b);
    default:
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

inline bool combine_booleans(ReduceOp op, bool a, bool b) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bor:
      return a || b;
    case ReduceOp::prod:
    case ReduceOp::min:
    case ReduceOp::band:
      return a && b;
    default:
      return a != b;
  }
}

template <typename Part>
std::complex<Part> combine_complex(ReduceOp op, std::complex<Part> a, std::complex<Part> b) {
  if (op != ReduceOp::prod) return a + b;
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

/// `values` from left to right, in f32 by way of double; `divisor` 0 divides nothing.
inline float expected_f32(ReduceOp op, const std::vector<float>& values, double divisor) {
  float value = values[0];
  for (std::size_t s = 1; s < values.size(); ++s) {
    value = static_cast<float>(combine_floats<double>(op, value, values[s]));
  }
  return divisor == 0 ? value : static_cast<float>(static_cast<double>(value) / divisor);
}

/// The value of one element: `values` combined from left to right, and divided for avg.
template <typename T>
T expected_element(DataType type, ReduceOp op, const std::vector<T>& values, double by) {
  const double divisor = op == ReduceOp::avg && by != 1 ? by : 0;
  if (values.size() == 1 && divisor == 0) return values[0];
  const auto fold = [&values](auto combine) {
    return std::accumulate(values.begin() + 1, values.end(), values[0], combine);
  };
  if constexpr (kIsComplex<T>) {
    const T value = fold([op](T a, T b) { return combine_complex(op, a, b); });
    const auto parts = static_cast<typename T::value_type>(divisor);
    return divisor == 0 ? value : T(value.real() / parts, value.imag() / parts);
  } else if constexpr (std::is_same_v<T, double>) {
    const double value = fold([op](T a, T b) { return combine_floats(op, a, b); });
    return divisor == 0 ? value : value / divisor;
  } else if constexpr (std::is_same_v<T, float>) {
    return expected_f32(op, values, divisor);
  } else if (is_small_float(type)) {
    std::vector<float> wide;
    for (const T bits : values) wide.push_back(widen(type, static_cast<std::uint16_t>(bits)));
    return static_cast<T>(narrow(type, expected_f32(op, wide, divisor)));
  } else if (type == DataType::boolean) {
    return fold([op](T a, T b) { return static_cast<T>(combine_booleans(op, a != 0, b != 0)); });
  } else {
    const T value = fold([op](T a, T b) { return combine_integers(op, a, b); });
    return divisor == 0 ? value
                        : static_cast<T>(static_cast<__int128>(value) / static_cast<__int128>(divisor));
  }
}

/// Equal bits, but any NaN equals any NaN, and zeros are equal whatever their sign.
template <typename T>
bool same_element(DataType type, T a, T b) {
  if constexpr (kIsComplex<T>) {
    return a == b;
  } else if (is_small_float(type)) {
    const float x = widen(type, static_cast<std::uint16_t>(a)),
                y = widen(type, static_cast<std::uint16_t>(b));
    return x == y || (std::isnan(x) && std::isnan(y));
  } else {
    return a == b || (a != a && b != b);
  }
}

/// The first element whose bits differ in `a` and `b`, or how many there are. NaNs differ in nothing: the
/// sign of one depends on the order of operands that a compiler chose.
inline std::size_t first_difference(DataType type, const Bytes& a, const Bytes& b) {
  return with_type(type, [&]<typename T>(T) -> std::size_t {
    const std::size_t count = a.size() / sizeof(T);
    for (std::size_t i = 0; i < count; ++i) {
      T x, y;
      std::memcpy(&x, a.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&y, b.data() + i * sizeof(T), sizeof(T));
      if (std::memcmp(&x, &y, sizeof(T)) == 0) continue;
      bool both_nan = false;
      if constexpr (std::is_floating_point_v<T>) {
        both_nan = x != x && y != y;
      } else if constexpr (!kIsComplex<T>) {
        both_nan = is_small_float(type) && std::isnan(widen(type, static_cast<std::uint16_t>(x))) &&
                   std::isnan(widen(type, static_cast<std::uint16_t>(y)));
      }
      if (!both_nan) return i;
    }
    return count;
  });
}

}  // namespace lockstep::internal::testing
