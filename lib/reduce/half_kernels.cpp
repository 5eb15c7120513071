// Kernels of f16 and bf16: widened to f32 when loaded, combined in f32, rounded once when stored.
#include "lib/reduce/simd.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/reduce/half_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "lib/reduce/simd_pass-inl.hpp"

// Highway's own f16 conversions, used where the instruction set has none, drop infinities and do not round:
// there the plain C++ kernels stay in the table.
#undef LOCKSTEP_NATIVE_F16
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || (HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64)
#define LOCKSTEP_NATIVE_F16 1
#else
#define LOCKSTEP_NATIVE_F16 0
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {

/// Elements of 16 bits that `Format` converts from and to vectors of f32.
template <class Format>
struct Widened {
  using Stored = std::uint16_t;
  using D = hn::ScalableTag<float>;
  using DHalf = hn::Rebind<std::uint16_t, D>;
  using V = hn::Vec<D>;
  static HWY_INLINE V load(const Stored* from) { return Format::widen(hn::LoadU(DHalf(), from)); }
  static HWY_INLINE V load(const Stored* from, std::size_t n) {
    return Format::widen(load_first(DHalf(), from, n));
  }
  static HWY_INLINE void store(V v, Stored* to) { hn::StoreU(Format::narrow(v), DHalf(), to); }
  static HWY_INLINE void store(V v, Stored* to, std::size_t n) {
    store_first(Format::narrow(v), DHalf(), to, n);
  }
};

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<std::uint16_t, F32>;

/// bf16 is the upper half of an f32.
struct Bf16Format {
  static HWY_INLINE hn::Vec<F32> widen(hn::Vec<U16> v) {
    return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), v)));
  }
  /// To nearest, ties to even: adding just under half a unit of the last kept bit, or half if that bit is
  /// set, carries into it. A NaN is not rounded, because it could carry into an infinity; it is made quiet
  /// instead.
  static HWY_INLINE hn::Vec<U16> narrow(hn::Vec<F32> v) {
    const U32 d;
    const auto bits = hn::BitCast(d, v);
    const auto last_kept = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const auto rounded = hn::Add(bits, hn::Add(last_kept, hn::Set(d, 0x7fff)));
    const auto quiet = hn::Or(bits, hn::Set(d, 0x00400000));
    const auto chosen = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), quiet, rounded);
    return hn::DemoteTo(U16(), hn::BitCast(I32(), hn::ShiftRight<16>(chosen)));
  }
};

#if LOCKSTEP_NATIVE_F16
struct F16Format {
  using DF16 = hn::Rebind<hwy::float16_t, F32>;
  static HWY_INLINE hn::Vec<F32> widen(hn::Vec<U16> v) {
    return hn::PromoteTo(F32(), hn::BitCast(DF16(), v));
  }
  static HWY_INLINE hn::Vec<U16> narrow(hn::Vec<F32> v) {
    return hn::BitCast(U16(), hn::DemoteTo(DF16(), v));
  }
};
#endif

template <class Element>
void fill_half(KernelTable& table, DataType type) {
  table.at(type, ReduceOp::sum) = run<Element, Sum>;
  table.at(type, ReduceOp::premul_sum) = run<Element, Sum>;
  table.at(type, ReduceOp::avg) = run<Element, Sum, Divide<F32>>;
  table.scale(type) = run<Element, Sum, Multiply<F32>>;
  table.at(type, ReduceOp::prod) = run<Element, Prod>;
  table.at(type, ReduceOp::min) = run<Element, Min>;
  table.at(type, ReduceOp::max) = run<Element, Max>;
}

void fill_halves([[maybe_unused]] KernelTable& table) {
#if HWY_TARGET != HWY_SCALAR
  fill_half<Widened<Bf16Format>>(table, DataType::bf16);
#if LOCKSTEP_NATIVE_F16
  fill_half<Widened<F16Format>>(table, DataType::f16);
#endif
#endif
}

}  // namespace lockstep::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::internal {
HWY_EXPORT(fill_halves);
void add_half_kernels(KernelTable& table) { HWY_DYNAMIC_DISPATCH(fill_halves)(table); }
}  // namespace lockstep::internal
#endif
