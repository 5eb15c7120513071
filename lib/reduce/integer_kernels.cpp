// Kernels of the integer types and of boolean.
#include "lib/reduce/simd.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/reduce/integer_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "lib/reduce/simd_pass-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {

struct And {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(a, b);
  }
};
struct Or {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(a, b);
  }
};
struct Xor {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(a, b);
  }
};

/// Products of single bytes; Highway multiplies from 16 bits up. The product of the even bytes is right in
/// the lower byte of each 16-bit lane, that of the odd bytes once they are shifted down.
struct ByteProd {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    const hn::DFromV<V> d;
    const hn::RepartitionToWide<hn::DFromV<V>> wide;
    const auto a16 = hn::BitCast(wide, a), b16 = hn::BitCast(wide, b);
    const auto even = hn::And(hn::Mul(a16, b16), hn::Set(wide, 0x00ff));
    const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
    return hn::BitCast(d, hn::Or(even, odd));
  }
};

/// The quotient truncated toward zero. Up to 32 bits it is taken in double, which compilers vectorise and
/// which is exact: a quotient that is not whole is at least 2^-32 of its size away from the next whole
/// number, and double rounds by 2^-53.
template <typename T>
struct DivideLanes {
  double divisor;
  explicit HWY_INLINE DivideLanes(const Pass& pass) : divisor(pass.divisor) {}
  /// `sum` holds unsigned lanes because that is how they wrap; T says how to read them.
  template <class V>
  HWY_INLINE V operator()(V sum) const {
    const hn::DFromV<V> d;
    HWY_ALIGN T lanes[hn::MaxLanes(hn::DFromV<V>())];
    hn::Store(hn::BitCast(hn::Rebind<T, hn::DFromV<V>>(), sum), hn::Rebind<T, hn::DFromV<V>>(), lanes);
    for (T& lane : lanes) {
      if constexpr (sizeof(T) <= 4) {
        lane = static_cast<T>(static_cast<double>(lane) / divisor);
      } else {
        lane = lane / static_cast<T>(divisor);
      }
    }
    return hn::BitCast(d, hn::Load(hn::Rebind<T, hn::DFromV<V>>(), lanes));
  }
};

/// What is the same with and without a sign: arithmetic that wraps, and bits.
template <typename Unsigned, class ProdOp>
void fill_wrapping(KernelTable& table, DataType type) {
  using Element = Direct<Unsigned>;
  table.at(type, ReduceOp::sum) = table.at(type, ReduceOp::premul_sum) = run_often<Element, Sum>;
  table.at(type, ReduceOp::prod) = run<Element, ProdOp>;
  table.at(type, ReduceOp::band) = run<Element, And>;
  table.at(type, ReduceOp::bor) = run<Element, Or>;
  table.at(type, ReduceOp::bxor) = run<Element, Xor>;
}

template <typename T>
void fill_by_sign(KernelTable& table, DataType type) {
  table.at(type, ReduceOp::avg) = run<Direct<hwy::MakeUnsigned<T>>, Sum, DivideLanes<T>>;
  table.at(type, ReduceOp::min) = run<Direct<T>, Min>;
  table.at(type, ReduceOp::max) = run<Direct<T>, Max>;
}

/// One byte that is 0 or 1.
void fill_boolean(KernelTable& table) {
  const auto set = [&table](std::initializer_list<ReduceOp> ops, Kernel kernel) {
    for (const ReduceOp op : ops) table.at(DataType::boolean, op) = kernel;
  };
  set({ReduceOp::sum, ReduceOp::max, ReduceOp::bor}, run<Direct<std::uint8_t>, Or>);
  set({ReduceOp::prod, ReduceOp::min, ReduceOp::band}, run<Direct<std::uint8_t>, And>);
  set({ReduceOp::bxor}, run<Direct<std::uint8_t>, Xor>);
}

void fill_integers([[maybe_unused]] KernelTable& table) {
#if HWY_TARGET != HWY_SCALAR
  for (const DataType type : {DataType::i8, DataType::u8}) fill_wrapping<std::uint8_t, ByteProd>(table, type);
  for (const DataType type : {DataType::i32, DataType::u32}) fill_wrapping<std::uint32_t, Prod>(table, type);
  for (const DataType type : {DataType::i64, DataType::u64}) fill_wrapping<std::uint64_t, Prod>(table, type);
  fill_by_sign<std::int8_t>(table, DataType::i8);
  fill_by_sign<std::uint8_t>(table, DataType::u8);
  fill_by_sign<std::int32_t>(table, DataType::i32);
  fill_by_sign<std::uint32_t>(table, DataType::u32);
  fill_by_sign<std::int64_t>(table, DataType::i64);
  fill_by_sign<std::uint64_t>(table, DataType::u64);
  fill_boolean(table);
#endif
}

}  // namespace lockstep::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::internal {
HWY_EXPORT(fill_integers);
void add_integer_kernels(KernelTable& table) { HWY_DYNAMIC_DISPATCH(fill_integers)(table); }
}  // namespace lockstep::internal
#endif
