// Conversions between f32 and the types of the wire.
#include "lib/reduce/convert.hpp"

#include "lib/base/standard_floats.hpp"
#include "lib/reduce/simd.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lib/reduce/convert.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "lib/reduce/small_float-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {

/// bf16 is the upper half of an f32.
struct BF16Format {
  using Bits = std::uint16_t;
  using DBits = hn::Rebind<Bits, F32>;
  static HWY_INLINE hn::Vec<F32> widen(hn::Vec<DBits> v) {
    return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), v)));
  }
  static HWY_INLINE hn::Vec<DBits> narrow(hn::Vec<F32> v) {
    const U32 d;
    const auto bits = hn::BitCast(d, v);
    const auto last_kept = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(last_kept, hn::Set(d, 0x7fff))));
    const auto nan =
        hn::Or(hn::ShiftRight<16>(hn::And(bits, hn::Set(d, 0x80000000))), hn::Set(d, BF16::kNan));
    const auto result = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), nan, rounded);
    return hn::DemoteTo(DBits(), hn::BitCast(I32(), result));
  }
};

struct Int8Format {
  using Bits = std::int8_t;
  using DBits = hn::Rebind<Bits, F32>;
  static constexpr float kLargest = 127;
  static HWY_INLINE hn::Vec<F32> widen(hn::Vec<DBits> v) {
    return hn::ConvertTo(F32(), hn::PromoteTo(I32(), v));
  }
  static HWY_INLINE hn::Vec<DBits> narrow(hn::Vec<F32> v) {
    const F32 d;
    const auto inside = hn::Min(hn::Max(v, hn::Set(d, -kLargest)), hn::Set(d, kLargest));
    return hn::DemoteTo(DBits(), hn::NearestInt(inside));
  }
};

struct F8E4M3Format : AnyFormat<F8E4M3> {
  static constexpr float kLargest = 448;
};
struct F8E5M2Format : AnyFormat<F8E5M2> {
  static constexpr float kLargest = 57344;
};

/// Applies `vector(first element, how many)` to [0, count), whole vectors first.
template <class Action>
HWY_INLINE void for_vectors(std::size_t count, const Action& action) {
  const std::size_t lanes = hn::Lanes(F32());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) action(i, lanes);
  if (i < count) action(i, count - i);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from, std::size_t n) {
  return n == hn::Lanes(d) ? hn::LoadU(d, from) : load_first(d, from, n);
}
template <class D>
HWY_INLINE void store(hn::Vec<D> v, D d, hn::TFromD<D>* to, std::size_t n) {
  return n == hn::Lanes(d) ? hn::StoreU(v, d, to) : store_first(v, d, to, n);
}

template <class Format>
void narrow_all(const float* input, void* output, std::size_t count, float factor) {
  auto* to = static_cast<typename Format::Bits*>(output);
  const auto f = hn::Set(F32(), factor);
  for_vectors(count, [&](std::size_t i, std::size_t n) {
    store(Format::narrow(hn::Mul(load(F32(), input + i, n), f)), typename Format::DBits(), to + i, n);
  });
}

template <class Format>
void widen_all(const void* input, float* output, std::size_t count, float factor) {
  const auto* from = static_cast<const typename Format::Bits*>(input);
  const auto f = hn::Set(F32(), factor);
  for_vectors(count, [&](std::size_t i, std::size_t n) {
    store(hn::Mul(Format::widen(load(typename Format::DBits(), from + i, n)), f), F32(), output + i, n);
  });
}

/// As the bits of an f32, which order as the magnitudes do, with NaN above infinity.
HWY_INLINE float max_magnitude(const float* input, std::size_t count) {
  const I32 d;
  auto most = hn::Zero(d);
  for_vectors(count, [&](std::size_t i, std::size_t n) {
    most = hn::Max(most, hn::And(hn::BitCast(d, load(F32(), input + i, n)), hn::Set(d, 0x7fffffff)));
  });
  return std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(d, most)));
}

template <class Format>
void quantise_all(const float* input, std::size_t count, std::size_t block, float* scales, void* codes) {
  constexpr float kLargestF32 = 3.4028234e38f;
  constexpr float kSmallest = 2 * Format::kLargest / kLargestF32;
  auto* to = static_cast<typename Format::Bits*>(codes);
  for (std::size_t first = 0, b = 0; first < count; first += block, ++b) {
    const std::size_t n = count - first < block ? count - first : block;
    const float largest = max_magnitude(input + first, n);
    float inverse = 0;
    if (!(largest <= kLargestF32)) {
      scales[b] = std::bit_cast<float>(0x7fc00000);
    } else if (largest < kSmallest) {
      scales[b] = 0;
    } else {
      scales[b] = largest / Format::kLargest;
      inverse = Format::kLargest / largest;
    }
    narrow_all<Format>(input + first, to + first, n, inverse);
  }
}

template <class Format>
void dequantise_all(const float* scales, const void* codes, std::size_t count, std::size_t block,
                    float factor, float* output, Into into) {
  const auto* from = static_cast<const typename Format::Bits*>(codes);
  for (std::size_t first = 0, b = 0; first < count; first += block, ++b) {
    const std::size_t end = count - first < block ? count : first + block;
    const float scale = scales[b] * factor;
    if (into == Into::replace) {
      widen_all<Format>(from + first, output + first, end - first, scale);
      continue;
    }
    const auto f = hn::Set(F32(), scale);
    for_vectors(end - first, [&](std::size_t i, std::size_t n) {
      float* to = output + first + i;
      const auto value = hn::Mul(Format::widen(load(typename Format::DBits(), from + first + i, n)), f);
      store(hn::Add(load(F32(), to, n), value), F32(), to, n);
    });
  }
}

template <class Format>
constexpr Conversion half_conversion() {
  return {narrow_all<Format>, widen_all<Format>, nullptr, nullptr};
}
template <class Format>
constexpr Conversion block_conversion() {
  return {narrow_all<Format>, widen_all<Format>, quantise_all<Format>, dequantise_all<Format>};
}

Conversion conversion_of(DataType type) {
  switch (type) {
    case DataType::f16:
      return half_conversion<F16Format>();
    case DataType::bf16:
      return half_conversion<BF16Format>();
    case DataType::f8e4m3:
      return block_conversion<F8E4M3Format>();
    case DataType::f8e5m2:
      return block_conversion<F8E5M2Format>();
    case DataType::i8:
      return block_conversion<Int8Format>();
    default:
      return {};
  }
}

}  // namespace lockstep::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::internal {
HWY_EXPORT(conversion_of);

namespace {
/// The conversion for this machine.
Conversion conversion(DataType type) { return HWY_DYNAMIC_DISPATCH(conversion_of)(type); }
}  // namespace

bool is_narrow(DataType type) noexcept { return conversion(type).narrow != nullptr; }

void narrow(DataType to, const float* input, void* output, std::size_t count, float factor) {
  const StandardFloats floats;
  conversion(to).narrow(input, output, count, factor);
}

void widen(DataType from, const void* input, float* output, std::size_t count, float factor) {
  const StandardFloats floats;
  conversion(from).widen(input, output, count, factor);
}

void quantise(DataType to, const float* input, std::size_t count, std::size_t block, float* scales,
              void* codes) {
  const StandardFloats floats;
  conversion(to).quantise(input, count, block, scales, codes);
}

void dequantise(DataType from, const float* scales, const void* codes, std::size_t count, std::size_t block,
                float factor, float* output, Into into) {
  const StandardFloats floats;
  conversion(from).dequantise(scales, codes, count, block, factor, output, into);
}

}  // namespace lockstep::internal
#endif
