// One pass of a reduction as a kernel runs it, thread by thread. Compiled by nvcc for GPUs and by the host's
// compiler for tests, which run the same threads one after the other.
//
// The sources are combined in order, in registers; each byte is read and written once. Where all buffers lie
// alike, memory is accessed by 16 bytes, and the elements before and after these one by one; else all are
// taken one by one. The next source is loaded before the present one is combined, and threads enough to fill
// the machine do the same, so that loads are always under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "lib/reduce/element.hpp"

namespace lockstep::internal::cuda {

/// Sources, and destinations, of one pass. All arguments of a kernel then are far below its limit of 4 KiB.
inline constexpr int kMaxPassBuffers = 32;

struct PassArguments {
  const void* sources[kMaxPassBuffers];
  void* destinations[kMaxPassBuffers];
  int source_count, destination_count;
  std::size_t count;    ///< Elements.
  std::size_t head;     ///< Elements before the first 16 aligned bytes of every buffer.
  std::size_t vectors;  ///< Of 16 bytes, after the head. 0: the buffers do not lie alike.
  double divisor;       ///< 1 unless the result is divided.
  bool scaled;          ///< The sources have factors.
  double factors[kMaxPassBuffers];
  const void* device_factors[kMaxPassBuffers];  ///< Where not null: one element in place of the factor.
  const std::uint32_t* permit;                  ///< Not null: nothing is done while the word is 0.
};

inline constexpr std::size_t kVectorBytes = 16;

struct alignas(kVectorBytes) Vector {
  std::uint32_t words[4];
};

LOCKSTEP_BOTH Vector load_vector(const void* from) {
#ifdef __CUDA_ARCH__
  const uint4 v = *static_cast<const uint4*>(from);
  return {{v.x, v.y, v.z, v.w}};
#else
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
#endif
}

LOCKSTEP_BOTH void store_vector(void* to, const Vector& v) {
#ifdef __CUDA_ARCH__
  *static_cast<uint4*>(to) = make_uint4(v.words[0], v.words[1], v.words[2], v.words[3]);
#else
  std::memcpy(to, &v, sizeof v);
#endif
}

template <class Element, class Op>
class PassBody {
  using Stored = typename Element::Stored;
  using Value = typename Element::Value;
  static constexpr std::size_t kLanes = kVectorBytes / sizeof(Stored);
  /// Only sums are divided and scaled.
  static constexpr bool kFinishes = std::is_same_v<Op, element::Sum> && std::is_arithmetic_v<Value>;

 public:
  /// The part of `thread` out of `threads`.
  static LOCKSTEP_BOTH void run(const PassArguments& pass, std::size_t thread, std::size_t threads) {
    if (pass.permit != nullptr && *pass.permit == 0) return;
    for (std::size_t v = thread; v < pass.vectors; v += threads) vector(pass, pass.head + v * kLanes);
    const std::size_t rest = pass.count - pass.vectors * kLanes;
    for (std::size_t r = thread; r < rest; r += threads) {
      single(pass, r < pass.head ? r : r + pass.vectors * kLanes);
    }
  }

 private:
  static LOCKSTEP_BOTH const Stored* source(const PassArguments& pass, int s) {
    return static_cast<const Stored*>(pass.sources[s]);
  }

  static LOCKSTEP_BOTH Value loaded(const PassArguments& pass, int s, Stored x) {
    const Value value = Element::load(x);
    if constexpr (kFinishes) {
      if (!pass.scaled) return value;
      const auto* const there = static_cast<const Stored*>(pass.device_factors[s]);
      const Value factor =
          there == nullptr ? element::factor_of<Value>(pass.factors[s]) : Element::load(*there);
      return Element::load(Element::store(element::Prod::apply(value, factor)));  // As if scaled beforehand.
    }
    return value;
  }

  static LOCKSTEP_BOTH Stored finished(const PassArguments& pass, Value value) {
    if constexpr (kFinishes) {
      if (pass.divisor != 1) value = element::divided(value, pass.divisor);
    }
    return Element::store(value);
  }

  static LOCKSTEP_BOTH void single(const PassArguments& pass, std::size_t i) {
    Value value = loaded(pass, 0, source(pass, 0)[i]);
    for (int s = 1; s < pass.source_count; ++s) {
      value = Op::apply(value, loaded(pass, s, source(pass, s)[i]));
    }
    const Stored result = finished(pass, value);
    for (int d = 0; d < pass.destination_count; ++d) static_cast<Stored*>(pass.destinations[d])[i] = result;
  }

  static LOCKSTEP_BOTH void vector(const PassArguments& pass, std::size_t i) {
    Value values[kLanes]{};
    Stored lanes[kLanes];
    Vector next = load_vector(source(pass, 0) + i);
    for (int s = 0; s < pass.source_count; ++s) {
      const Vector now = next;
      if (s + 1 < pass.source_count) next = load_vector(source(pass, s + 1) + i);
      std::memcpy(lanes, &now, sizeof now);
      LOCKSTEP_UNROLL
      for (std::size_t k = 0; k < kLanes; ++k) {
        const Value value = loaded(pass, s, lanes[k]);
        values[k] = s == 0 ? value : Op::apply(values[k], value);
      }
    }
    LOCKSTEP_UNROLL
    for (std::size_t k = 0; k < kLanes; ++k) lanes[k] = finished(pass, values[k]);
    Vector result;
    std::memcpy(&result, lanes, sizeof result);
    for (int d = 0; d < pass.destination_count; ++d) {
      store_vector(static_cast<Stored*>(pass.destinations[d]) + i, result);
    }
  }
};

}  // namespace lockstep::internal::cuda
