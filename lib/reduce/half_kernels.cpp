// Kernels of f16 and bf16.
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "lib/reduce/simd.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/reduce/half_kernels.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "lib/reduce/small_float-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

/// bf16 is the upper half of an f32. A vector of it is taken as two vectors of f32, one of the even and one
/// of the odd elements, because that needs no instruction that moves data across lanes.
struct Bf16 {
  using Stored = std::uint16_t;
  using D = F32;
  static constexpr bool kMemoryBound = true;
  using DStored = hn::Repartition<std::uint16_t, F32>;
  struct V {
    hn::Vec<F32> even, odd;
  };
  static HWY_INLINE V widen(hn::Vec<DStored> v) {
    const auto pairs = hn::BitCast(U32(), v);
    return {hn::BitCast(F32(), hn::ShiftLeft<16>(pairs)),
            hn::BitCast(F32(), hn::And(pairs, hn::Set(U32(), 0xffff0000)))};
  }
  static HWY_INLINE hn::Vec<DStored> narrow(V v) {
    const auto even = hn::ShiftRight<16>(rounded(v.even));
    return hn::BitCast(DStored(), hn::OrAnd(even, rounded(v.odd), hn::Set(U32(), 0xffff0000)));
  }
  template <class Op>
  static HWY_INLINE V combine(V a, V b) {
    return {Op::apply(a.even, b.even), Op::apply(a.odd, b.odd)};
  }
  template <class Finish>
  static HWY_INLINE V finish(const Finish& finish, V v) {
    return {finish(v.even), finish(v.odd)};
  }

 private:
  /// The upper half is right afterwards: to nearest, ties to even, because just under half a unit of the last
  /// kept bit, or half if that bit is set, carries into it. A NaN stays one, because the lower half of every
  /// NaN here is zero: it comes from a bf16, or is the processor's own.
  static HWY_INLINE hn::Vec<U32> rounded(hn::Vec<F32> v) {
    const auto bits = hn::BitCast(U32(), v);
    const auto half = hn::Add(bits, hn::Set(U32(), 0x7fff));
#if HWY_TARGET <= HWY_AVX3
    // Masks are registers of their own there, and adding under one is one instruction.
    const auto odd = hn::TestBit(bits, hn::Set(U32(), 0x10000));
    return hn::IfThenElse(odd, hn::Add(half, hn::Set(U32(), 1)), half);
#else
    return hn::Add(half, hn::And(hn::ShiftRight<16>(bits), hn::Set(U32(), 1)));
#endif
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

/// f16 added in f16, by an instruction that not every processor of this target has (AVX512-FP16). The sum of
/// two has the bits that it has by way of f32, since f32 keeps 24 >= 2 * 11 + 2 bits (Figueroa, When is
/// double rounding innocuous?, 1995). That of three has not.
struct AddedF16 : Direct<std::uint16_t> {
  template <class Op>
  static HWY_INLINE V combine(V a, V b) {
    static_assert(std::is_same_v<Op, Sum>);
    V sum;
    asm("vaddph %2, %1, %0" : "=v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};

bool adds_f16() {
  static const bool does = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 23 & 1) != 0;
  }();
  return does;
}

void sum_f16(const Pass& pass) {
  if (pass.source_count == 2 && adds_f16()) return run_often<AddedF16, Sum>(pass);
  run_often<Widened<F16Format>, Sum>(pass);
}

#endif
#endif

void fill_halves([[maybe_unused]] KernelTable& table) {
#if HWY_TARGET != HWY_SCALAR
  fill_float<Widened<F16Format>>(table, DataType::f16);
  fill_float<Bf16>(table, DataType::bf16);
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  table.at(DataType::f16, ReduceOp::sum) = table.at(DataType::f16, ReduceOp::premul_sum) = sum_f16;
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
