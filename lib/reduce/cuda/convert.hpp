// Conversions between f32 and the types of the wire as kernels run them: the bits of lib/reduce/convert.hpp.
// Compiled by nvcc for GPUs and by the host's compiler for tests.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lib/reduce/element.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal::cuda {

/// i8 of the wire: to nearest, ties to even, from -127 to 127.
struct Int8 {
  using Stored = std::int8_t;
  static LOCKSTEP_BOTH float load(Stored x) { return static_cast<float>(x); }
  static LOCKSTEP_BOTH Stored store(float x) {
    const float inside = x < -127 ? -127.0f : x > 127 ? 127.0f : x;
    return inside != inside ? Stored{0} : static_cast<Stored>(static_cast<int>(rintf(inside)));
  }
};

/// What the largest magnitude of a block becomes.
template <class Format>
inline constexpr float kLargest = 127;
template <>
inline constexpr float kLargest<element::Widened<F8E4M3>> = 448;
template <>
inline constexpr float kLargest<element::Widened<F8E5M2>> = 57344;

struct ConvertArguments {
  const void* input;
  void* output;
  std::size_t count;
  float factor;
};

struct BlockArguments {
  const float* input;  ///< Of quantise.
  float* scales;
  void* codes;
  std::size_t count, block;
  float factor;  ///< Of dequantise, as what follows.
  float* output;
  bool add;
};

template <typename T>
struct alignas(4 * sizeof(T)) Four {
  T lane[4];
};

template <typename T>
LOCKSTEP_BOTH Four<T> load_four(const T* from) {
#ifdef __CUDA_ARCH__
  return *reinterpret_cast<const Four<T>*>(from);
#else
  Four<T> four;
  std::memcpy(&four, from, sizeof four);
  return four;
#endif
}

template <typename T>
LOCKSTEP_BOTH void store_four(T* to, const Four<T>& four) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<Four<T>*>(to) = four;
#else
  std::memcpy(to, &four, sizeof four);
#endif
}

template <typename T>
LOCKSTEP_BOTH bool aligned_by_four(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(Four<T>) == 0;
}

/// to[i] = convert(from[i]) for the `worker`th of `workers` threads, by fours where both buffers allow it.
template <typename To, typename From, typename Convert>
LOCKSTEP_BOTH void convert_all(const From* from, To* to, std::size_t count, std::size_t worker,
                               std::size_t workers, const Convert& convert) {
  const std::size_t fours = aligned_by_four(from) && aligned_by_four(to) ? count / 4 : 0;
  for (std::size_t f = worker; f < fours; f += workers) {
    const Four<From> in = load_four(from + 4 * f);
    Four<To> out;
    LOCKSTEP_UNROLL
    for (int k = 0; k < 4; ++k) out.lane[k] = convert(in.lane[k]);
    store_four(to + 4 * f, out);
  }
  for (std::size_t i = 4 * fours + worker; i < count; i += workers) to[i] = convert(from[i]);
}

template <class Format>
LOCKSTEP_BOTH void narrow_part(const ConvertArguments& a, std::size_t thread, std::size_t threads) {
  using Stored = typename Format::Stored;
  convert_all(static_cast<const float*>(a.input), static_cast<Stored*>(a.output), a.count, thread, threads,
              [&a](float x) { return Format::store(x * a.factor); });
}

template <class Format>
LOCKSTEP_BOTH void widen_part(const ConvertArguments& a, std::size_t thread, std::size_t threads) {
  using Stored = typename Format::Stored;
  convert_all(static_cast<const Stored*>(a.input), static_cast<float*>(a.output), a.count, thread, threads,
              [&a](Stored x) { return Format::load(x) * a.factor; });
}

struct BlockScale {
  float scale, inverse;
};

/// `largest`: the bits of the largest magnitude, which order as the magnitudes do, with NaN above infinity.
template <class Format>
LOCKSTEP_BOTH BlockScale block_scale(std::uint32_t largest) {
  constexpr float kLargestF32 = 3.4028234e38f;
  constexpr float kSmallest = 2 * kLargest<Format> / kLargestF32;
  const float magnitude = std::bit_cast<float>(largest);
  if (!(magnitude <= kLargestF32)) return {std::bit_cast<float>(0x7fc00000), 0};
  if (magnitude < kSmallest) return {0, 0};
  return {magnitude / kLargest<Format>, kLargest<Format> / magnitude};
}

/// One block by a group of threads: `group.lane()` of `group.size()`, and group.max(bits) over them.
template <class Format, class Group>
LOCKSTEP_BOTH void quantise_block(const BlockArguments& a, std::size_t b, const Group& group) {
  const std::size_t first = b * a.block;
  const std::size_t count = a.count - first < a.block ? a.count - first : a.block;
  std::uint32_t largest = 0;
  for (std::size_t i = group.lane(); i < count; i += group.size()) {
    const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(a.input[first + i]) & 0x7fffffff;
    if (magnitude > largest) largest = magnitude;
  }
  const BlockScale scale = block_scale<Format>(group.max(largest));
  if (group.lane() == 0) a.scales[b] = scale.scale;
  convert_all(a.input + first, static_cast<typename Format::Stored*>(a.codes) + first, count, group.lane(),
              group.size(), [&scale](float x) { return Format::store(x * scale.inverse); });
}

template <class Format, class Group>
LOCKSTEP_BOTH void dequantise_block(const BlockArguments& a, std::size_t b, const Group& group) {
  using Stored = typename Format::Stored;
  const std::size_t first = b * a.block;
  const std::size_t count = a.count - first < a.block ? a.count - first : a.block;
  const Stored* const codes = static_cast<const Stored*>(a.codes) + first;
  float* const output = a.output + first;
  const float scale = a.scales[b] * a.factor;
  if (!a.add) {
    convert_all(codes, output, count, group.lane(), group.size(),
                [scale](Stored x) { return Format::load(x) * scale; });
    return;
  }
  for (std::size_t i = group.lane(); i < count; i += group.size())
    output[i] += Format::load(codes[i]) * scale;
}

/// Each function calls `add.template operator()<Format>(type)` for every format of its kind.
template <class Add>
void list_narrow(Add add) {
  add.template operator()<element::Widened<F16>>(DataType::f16);
  add.template operator()<element::Widened<BF16>>(DataType::bf16);
  add.template operator()<element::Widened<F8E4M3>>(DataType::f8e4m3);
  add.template operator()<element::Widened<F8E5M2>>(DataType::f8e5m2);
  add.template operator()<Int8>(DataType::i8);
}
template <class Add>
void list_quantised(Add add) {
  add.template operator()<element::Widened<F8E4M3>>(DataType::f8e4m3);
  add.template operator()<element::Widened<F8E5M2>>(DataType::f8e5m2);
  add.template operator()<Int8>(DataType::i8);
}

}  // namespace lockstep::internal::cuda
