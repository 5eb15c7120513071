// Kernels in plain C++.
#include <algorithm>
#include <cmath>
#include <complex>
#include <type_traits>

#include "lib/base/float16.hpp"
#include "lib/reduce/kernel.hpp"

namespace lockstep::internal {
namespace {

template <typename Float>
struct Small {
  using Stored = typename Float::Bits;
  using Value = float;
  static Value widen(Stored x) { return Float::to_float(x); }
  static Stored narrow(Value x) { return Float::from_float(x); }
};

template <typename T>
struct Direct {
  using Stored = T;
  using Value = T;
  static Value widen(Stored x) { return x; }
  static Stored narrow(Value x) { return x; }
};

/// Integers are combined as unsigned numbers, which wrap.
template <typename T>
constexpr T wrapped(T a, T b, auto op) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(op(static_cast<std::uint64_t>(a), static_cast<std::uint64_t>(b)));
  } else {
    return op(a, b);
  }
}

struct Sum {
  static auto apply(auto a, auto b) {
    return wrapped(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Prod {
  static auto apply(auto a, auto b) {
    return wrapped(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct Min {
  static auto apply(auto a, auto b) { return a != a || a < b ? a : b; }
};
struct Max {
  static auto apply(auto a, auto b) { return a != a || b < a ? a : b; }
};
struct And {
  static auto apply(auto a, auto b) { return static_cast<decltype(a)>(a & b); }
};
struct Or {
  static auto apply(auto a, auto b) { return static_cast<decltype(a)>(a | b); }
};
struct Xor {
  static auto apply(auto a, auto b) { return static_cast<decltype(a)>(a ^ b); }
};

template <typename T>
T divided(T value, std::uint32_t divisor) {
  if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(value / std::uint64_t{divisor});
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value / std::int64_t{divisor});
  } else {
    return value / static_cast<T>(divisor);
  }
}

template <typename Codec, typename Op, bool kDivide = false>
void run(const Pass& pass) {
  using Stored = typename Codec::Stored;
  for (std::size_t i = 0; i < pass.count; ++i) {
    auto value = Codec::widen(static_cast<const Stored*>(pass.sources[0])[i]);
    for (std::size_t s = 1; s < pass.source_count; ++s) {
      value = Op::apply(value, Codec::widen(static_cast<const Stored*>(pass.sources[s])[i]));
    }
    if constexpr (kDivide) value = divided(value, pass.divisor);
    for (std::size_t d = 0; d < pass.destination_count; ++d) {
      static_cast<Stored*>(pass.destinations[d])[i] = Codec::narrow(value);
    }
  }
}

template <typename Codec>
void add_arithmetic(KernelTable& table, DataType type) {
  table.at(type, ReduceOp::sum) = run<Codec, Sum>;
  table.at(type, ReduceOp::prod) = run<Codec, Prod>;
  table.at(type, ReduceOp::avg) = run<Codec, Sum, true>;
}

template <typename Codec>
void add_order(KernelTable& table, DataType type) {
  table.at(type, ReduceOp::min) = run<Codec, Min>;
  table.at(type, ReduceOp::max) = run<Codec, Max>;
}

template <typename Codec>
void add_float(KernelTable& table, DataType type) {
  add_arithmetic<Codec>(table, type);
  add_order<Codec>(table, type);
  table.at(type, ReduceOp::premul_sum) = run<Codec, Sum>;
}

template <typename T>
void add_integer(KernelTable& table, DataType type) {
  add_arithmetic<Direct<T>>(table, type);
  add_order<Direct<T>>(table, type);
  table.at(type, ReduceOp::band) = run<Direct<T>, And>;
  table.at(type, ReduceOp::bor) = run<Direct<T>, Or>;
  table.at(type, ReduceOp::bxor) = run<Direct<T>, Xor>;
}

void add_boolean(KernelTable& table) {
  using Byte = Direct<std::uint8_t>;
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::bor})
    table.at(DataType::boolean, op) = run<Byte, Or>;
  for (const ReduceOp op : {ReduceOp::prod, ReduceOp::min, ReduceOp::band})
    table.at(DataType::boolean, op) = run<Byte, And>;
  table.at(DataType::boolean, ReduceOp::bxor) = run<Byte, Xor>;
}

}  // namespace

void add_scalar_kernels(KernelTable& table) {
  add_float<Small<F16>>(table, DataType::f16);
  add_float<Small<BF16>>(table, DataType::bf16);
  add_float<Small<F8E4M3>>(table, DataType::f8e4m3);
  add_float<Small<F8E5M2>>(table, DataType::f8e5m2);
  add_float<Direct<float>>(table, DataType::f32);
  add_float<Direct<double>>(table, DataType::f64);
  add_integer<std::int8_t>(table, DataType::i8);
  add_integer<std::uint8_t>(table, DataType::u8);
  add_integer<std::int32_t>(table, DataType::i32);
  add_integer<std::uint32_t>(table, DataType::u32);
  add_integer<std::int64_t>(table, DataType::i64);
  add_integer<std::uint64_t>(table, DataType::u64);
  add_arithmetic<Direct<std::complex<float>>>(table, DataType::complex64);
  add_arithmetic<Direct<std::complex<double>>>(table, DataType::complex128);
  add_boolean(table);
}

}  // namespace lockstep::internal
