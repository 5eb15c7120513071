// The arithmetic of one element, as types.hpp defines it: how it is loaded, combined, finished and stored.
// The scalar kernels and the kernels of GPUs are made of it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lib/base/both.hpp"
#include "lib/base/element_types.hpp"
#include "lib/base/float16.hpp"
#ifdef __CUDACC__
#include "lib/reduce/cuda/small_float.cuh"
#endif

namespace lockstep::internal::element {

/// Small floats, computed in f32.
template <typename Float>
struct Widened {
  using Stored = typename Float::Bits;
  using Value = float;
#ifdef __CUDA_ARCH__  // With the processor's conversions.
  static LOCKSTEP_BOTH Value load(Stored x) { return cuda::SmallFloatOf<Float>::to_float(x); }
  static LOCKSTEP_BOTH Stored store(Value x) { return cuda::SmallFloatOf<Float>::from_float(x); }
#else
  static LOCKSTEP_BOTH Value load(Stored x) { return Float::to_float(x); }
  static LOCKSTEP_BOTH Stored store(Value x) { return Float::from_float(x); }
#endif
};

/// Elements that are computed in the type in which they are stored.
template <typename T>
struct Direct {
  using Stored = T;
  using Value = T;
  static LOCKSTEP_BOTH Value load(Stored x) { return x; }
  static LOCKSTEP_BOTH Stored store(Value x) { return x; }
};

template <typename Part>
struct Complex {
  Part real, imaginary;
};

/// Calls body.template operator()<Element>(count) with the real floats that so many elements of a float or
/// complex type are made of. False, without a call, for any other type. A new one has to be listed here.
template <class Body>
LOCKSTEP_BOTH bool with_floats(DataType type, std::uint64_t count, Body body) {
  const Parts parts = parts_of(type);
  count *= parts.count;
  switch (parts.type) {
    case DataType::f16:
      return body.template operator()<Widened<F16>>(count), true;
    case DataType::bf16:
      return body.template operator()<Widened<BF16>>(count), true;
    case DataType::f8e4m3:
      return body.template operator()<Widened<F8E4M3>>(count), true;
    case DataType::f8e5m2:
      return body.template operator()<Widened<F8E5M2>>(count), true;
    case DataType::f32:
      return body.template operator()<Direct<float>>(count), true;
    case DataType::f64:
      return body.template operator()<Direct<double>>(count), true;
    case DataType::i8:
    case DataType::u8:
    case DataType::i32:
    case DataType::u32:
    case DataType::i64:
    case DataType::u64:
    case DataType::boolean:
    case DataType::complex64:  // Is its parts.
    case DataType::complex128:
      return false;
  }
  return false;
}

/// Integers go by way of u64, which wraps: the low bits of a sum or product depend on nothing else.
template <typename T>
using Wrapping = std::conditional_t<std::is_integral_v<T>, std::uint64_t, T>;

struct Sum {
  template <typename T>
  static LOCKSTEP_BOTH T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Prod {
  template <typename T>
  static LOCKSTEP_BOTH T apply(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
  /// By the definition; the usual operator* would also repair infinities, at the price of a call per element.
  template <typename Part>
  static LOCKSTEP_BOTH Complex<Part> apply(Complex<Part> a, Complex<Part> b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
};
// The first operand when it is NaN, the second when it is, because then the comparison is false.
struct Min {
  template <typename T>
  static LOCKSTEP_BOTH T apply(T a, T b) {
    return a != a || a < b ? a : b;
  }
};
struct Max {
  template <typename T>
  static LOCKSTEP_BOTH T apply(T a, T b) {
    return a != a || b < a ? a : b;
  }
};
struct And {
  template <typename T>
  static LOCKSTEP_BOTH T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <typename T>
  static LOCKSTEP_BOTH T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <typename T>
  static LOCKSTEP_BOTH T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

/// For avg.
template <typename T>
LOCKSTEP_BOTH T divided(T value, double divisor) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<T>(value / static_cast<Wide>(divisor));
  } else {
    return value / static_cast<T>(divisor);
  }
}

/// For premul_sum. Of integers it is a whole number, which wraps as they do.
template <typename T>
LOCKSTEP_BOTH T factor_of(double factor) {
  if constexpr (std::is_integral_v<T>) {
    return factor < 0 ? static_cast<T>(static_cast<std::int64_t>(factor))
                      : static_cast<T>(static_cast<std::uint64_t>(factor));
  } else {
    return static_cast<T>(factor);
  }
}
template <typename T>
LOCKSTEP_BOTH T scaled(T value, double factor) {
  return Prod::apply(value, factor_of<T>(factor));
}

}  // namespace lockstep::internal::element
