// Small floats in vectors of f32, compiled once per instruction set (Highway includes this file again for
// each).
#if defined(LOCKSTEP_REDUCE_SMALL_FLOAT_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_REDUCE_SMALL_FLOAT_INL_HPP_
#undef LOCKSTEP_REDUCE_SMALL_FLOAT_INL_HPP_
#else
#define LOCKSTEP_REDUCE_SMALL_FLOAT_INL_HPP_
#endif

#include "hwy/highway.h"
#include "lib/base/float16.hpp"
#include "lib/reduce/simd_pass-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;

/// Elements of `Format::Bits` that are combined in f32, a vector of f32 at a time.
template <class Format>
struct Widened : OneVector, Format {
  using Stored = typename Format::Bits;
  using DStored = typename Format::DBits;
  using D = F32;
  using V = hn::Vec<F32>;
};

/// The conversions of SmallFloat (lib/base/float16.hpp), branch by branch, for every lane at once. Not for
/// bf16, whose subnormals are those of f32.
template <class Float>
struct AnyFormat {
  using Bits = typename Float::Bits;
  using DBits = hn::Rebind<Bits, F32>;
  static constexpr bool kMemoryBound = false;
  static constexpr int kDropped = 23 - Float::kMantissaWidth;
  static constexpr std::int32_t kRebias = (127 - Float::kBias) << 23;
  /// The smallest normal number, as f32.
  static constexpr std::int32_t kNormal = kRebias + (1 << 23);

  static HWY_INLINE hn::Vec<F32> widen(hn::Vec<DBits> v) {
    const I32 d;
    const auto bits = hn::BitCast(d, hn::PromoteTo(U32(), v));
    const auto magnitude = hn::And(bits, hn::Set(d, Float::kSign - 1));
    const auto sign = hn::ShiftLeft<32 - 8 * sizeof(Bits)>(hn::Xor(bits, magnitude));
    const auto aligned = hn::ShiftLeft<kDropped>(magnitude);
    const auto normal = hn::Add(aligned, hn::Set(d, kRebias));
    const auto hidden = hn::Set(d, kNormal);
    const auto subnormal = hn::Sub(hn::BitCast(F32(), hn::Or(aligned, hidden)), hn::BitCast(F32(), hidden));
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 1 << Float::kMantissaWidth)),
                                 hn::BitCast(d, subnormal), normal);
    // With all exponent bits of f32 set, the mantissa tells infinity from NaN just as it did.
    const auto special = hn::Or(aligned, hn::Set(d, 0x7f800000));
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, Float::kOverflow - 1)), special, result);
    return hn::BitCast(F32(), hn::Or(result, sign));
  }

  static HWY_INLINE hn::Vec<DBits> narrow(hn::Vec<F32> v) {
    const I32 d;
    const auto bits = hn::BitCast(d, v);
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const auto sign =
        hn::BitCast(d, hn::ShiftRight<32 - 8 * sizeof(Bits)>(hn::BitCast(U32(), hn::Xor(bits, magnitude))));
    const auto rebased = hn::Sub(magnitude, hn::Set(d, kRebias));
    const auto last_kept = hn::And(hn::ShiftRight<kDropped>(rebased), hn::Set(d, 1));
    const auto half = hn::Set(d, (1 << (kDropped - 1)) - 1);
    const auto normal = hn::ShiftRight<kDropped>(hn::Add(rebased, hn::Add(half, last_kept)));
    // The sum with a power of two whose last place is our smallest subnormal is rounded there by the
    // processor.
    const auto magic = hn::Set(d, kNormal + (kDropped << 23));
    const auto sum = hn::Add(hn::BitCast(F32(), magnitude), hn::BitCast(F32(), magic));
    const auto subnormal = hn::Sub(hn::BitCast(d, sum), magic);
    auto result = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, kNormal)), subnormal, normal);
    result = hn::Min(result, hn::Set(d, Float::kOverflow));
    result = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7f800000)), hn::Set(d, Float::kNan), result);
    return hn::DemoteTo(DBits(), hn::Or(result, sign));
  }
};

// Highway's own f16 conversions, used where the instruction set has none, drop infinities and do not round.
#if (HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2) || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
using F16Format = AnyFormat<F16>;
#else
struct F16Format {
  using Bits = std::uint16_t;
  using DBits = hn::Rebind<Bits, F32>;
  static constexpr bool kMemoryBound = true;  ///< One instruction each way.
  using DF16 = hn::Rebind<hwy::float16_t, F32>;
  static HWY_INLINE hn::Vec<F32> widen(hn::Vec<DBits> v) {
    return hn::PromoteTo(F32(), hn::BitCast(DF16(), v));
  }
  static HWY_INLINE hn::Vec<DBits> narrow(hn::Vec<F32> v) {
    return hn::BitCast(DBits(), hn::DemoteTo(DF16(), v));
  }
};
#endif

}  // namespace lockstep::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
