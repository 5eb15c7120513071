// The one loop of all SIMD kernels, compiled once per instruction set (Highway includes this file again for
// each).
//
// A group of vectors is loaded from the first source, every further source is combined into those registers
// in order, and they are stored to every destination. So each byte is read once and written once whatever the
// number of sources and destinations, small floats are rounded once, and a destination may be one of the
// sources.
#if defined(LOCKSTEP_REDUCE_SIMD_PASS_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_REDUCE_SIMD_PASS_INL_HPP_
#undef LOCKSTEP_REDUCE_SIMD_PASS_INL_HPP_
#else
#define LOCKSTEP_REDUCE_SIMD_PASS_INL_HPP_
#endif

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "lib/reduce/kernel.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::internal::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The first `n` lanes from memory, the others zero. Touches nothing past them.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_first(D d, const T* from, std::size_t n) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(D())] = {};
  std::memcpy(lanes, from, n * sizeof(T));
  return hn::Load(d, lanes);
#else
  return hn::MaskedLoad(hn::FirstN(d, n), d, from);
#endif
}

template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void store_first(hn::Vec<D> v, D d, T* to, std::size_t n) {
#if HWY_MEM_OPS_MIGHT_FAULT
  HWY_ALIGN T lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  std::memcpy(to, lanes, n * sizeof(T));
#else
  hn::BlendedStore(v, hn::FirstN(d, n), d, to);
#endif
}

// An element type says how memory (vectors of DStored) becomes what is combined (V, of lanes of D) and back:
//   Stored, DStored, D, V; widen(Vec<DStored>) -> V; narrow(V) -> Vec<DStored>; combine<Op>(V, V);
//   finish(Finish, V); kMemoryBound: whether memory is slower than the arithmetic.

/// Base of the elements whose V is one vector.
struct OneVector {
  template <class Op, class V>
  static HWY_INLINE V combine(V a, V b) {
    return Op::apply(a, b);
  }
  template <class Finish, class V>
  static HWY_INLINE V finish(const Finish& finish, V v) {
    return finish(v);
  }
};

/// Elements that are computed in the type in which they are stored.
template <typename T>
struct Direct : OneVector {
  using Stored = T;
  using D = hn::ScalableTag<T>;
  using DStored = D;
  using V = hn::Vec<D>;
  static constexpr bool kMemoryBound = true;
  static HWY_INLINE V widen(V v) { return v; }
  static HWY_INLINE V narrow(V v) { return v; }
};

struct Sum {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};
struct Prod {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
};

/// Whether Min and Max of floats are `a < b ? a : b` and `b < a ? a : b`, as those of x86 are (Intel SDM,
/// MINPS): the second operand where one is NaN, and of two zeros whatever their signs. 64-bit ARM's give the
/// negative or the positive zero, and Highway's loops for a processor without such instructions (EMU128) the
/// number beside a NaN.
inline constexpr bool kMinIsComparison = HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128;
template <class V>
inline constexpr bool kHasNan = hwy::IsFloat<hn::TFromV<V>>();

/// `chosen`, or the first operand where that is NaN: all that a comparison leaves to be looked at.
template <class V>
HWY_INLINE V or_nan(V a, V chosen) {
  if constexpr (kHasNan<V>) return hn::IfThenElse(hn::IsNaN(a), a, chosen);
  return chosen;
}
struct Min {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (kHasNan<V> && !kMinIsComparison) return or_nan(a, hn::IfThenElse(hn::Lt(a, b), a, b));
    return or_nan(a, hn::Min(a, b));
  }
};
struct Max {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (kHasNan<V> && !kMinIsComparison) return or_nan(a, hn::IfThenElse(hn::Lt(b, a), a, b));
    return or_nan(a, hn::Max(a, b));
  }
};

// What happens to a combined value before it is stored.
struct Keep {
  explicit Keep(const Pass&) {}
  template <class V>
  HWY_INLINE V operator()(V v) const {
    return v;
  }
};

template <class D>
struct Divide {
  hn::Vec<D> divisor;
  explicit HWY_INLINE Divide(const Pass& pass)
      : divisor(hn::Set(D(), static_cast<hn::TFromD<D>>(pass.divisor))) {}
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> v) const { return hn::Div(v, divisor); }
};

template <class D>
struct Multiply {
  hn::Vec<D> factor;
  explicit HWY_INLINE Multiply(const Pass& pass)
      : factor(hn::Set(D(), static_cast<hn::TFromD<D>>(pass.factor))) {}
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<D> v) const { return hn::Mul(v, factor); }
};

/// The addresses of the sources or of the destinations, when their number is known while compiling. They stay
/// in registers, and the unrolled loops over them give every stream of memory load and store instructions of
/// its own, which is how processors' prefetchers tell streams apart: a fifth of the bandwidth at 256 MiB.
template <typename Pointer, std::size_t kCount>
class Streams {
 public:
  template <typename List>
  HWY_INLINE Streams(List list, std::size_t) {
    for (std::size_t k = 0; k < kCount; ++k) at_[k] = static_cast<Pointer>(list[k]);
  }
  HWY_INLINE std::size_t count() const { return kCount; }
  HWY_INLINE Pointer operator[](std::size_t k) const { return at_[k]; }

 private:
  Pointer at_[kCount];
};

/// Any number of them.
template <typename Pointer>
class Streams<Pointer, 0> {
  using List = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const void, void>* const*;

 public:
  HWY_INLINE Streams(List list, std::size_t count) : list_(list), count_(count) {}
  HWY_INLINE std::size_t count() const { return count_; }
  HWY_INLINE Pointer operator[](std::size_t k) const { return static_cast<Pointer>(list_[k]); }

 private:
  List list_;
  std::size_t count_;
};

/// One pass. `kSources` and `kDestinations` are its numbers of streams, or 0: known only at run time.
/// `kPastCaches`: writes with non-temporal stores, for which can_bypass_caches(pass) must hold.
template <class Element, class Op, class Finish, std::size_t kSources, std::size_t kDestinations,
          bool kPastCaches>
class Loop {
 public:
  explicit HWY_INLINE Loop(const Pass& pass)
      : sources_(pass.sources, pass.source_count),
        destinations_(pass.destinations, pass.destination_count),
        count_(pass.count),
        ends_backwards_(pass.ends_backwards),
        finish_(pass) {}

  HWY_INLINE void run() const {
    const std::size_t lanes = hn::Lanes(DStored());
    std::size_t i = 0;
    if (kPastCaches || count_ >= kVectorsWorthAligning * lanes) {  // Non-temporal stores have to be aligned.
      i = std::min(elements_to_alignment(lanes * sizeof(Stored)), count_);
      if (i > 0) partial(0, i);
    }
    const std::size_t step = 4 * lanes, groups = (count_ - i) / step, end = i + groups * step;
    const std::size_t turn = end - (ends_backwards_ ? groups_turned(groups, step) * step : 0);
    for (; i < turn; i += step) group(i, lanes);
    for (i = end; i > turn;) group(i -= step, lanes);
    i = end;
    for (; i + lanes <= count_; i += lanes) single(i);
    if (i < count_) partial(i, count_ - i);
    if constexpr (kPastCaches) hwy::FlushStream();  // A flag that is set after the pass must not overtake it.
  }

 private:
  using Stored = typename Element::Stored;
  using DStored = typename Element::DStored;
  using V = typename Element::V;

  /// Vectors that straddle cache lines cost up to a fifth of the bandwidth; below this many the extra step
  /// costs more.
  static constexpr std::size_t kVectorsWorthAligning = 64;

  /// A page, as far as processors fetch ahead, or half of a pass that is shorter: ahead of the other half
  /// lies what was worked on already, or is next.
  static constexpr std::size_t kTurnedBytes = 4 << 10;
  static HWY_INLINE std::size_t groups_turned(std::size_t groups, std::size_t step) {
    return std::min(groups / 2, kTurnedBytes / (step * sizeof(Stored)));
  }

  /// Elements before the first one of destination 0 that starts a vector; the other buffers mostly lie alike.
  HWY_INLINE std::size_t elements_to_alignment(std::size_t vector_bytes) const {
    const auto address = reinterpret_cast<std::uintptr_t>(destinations_[0]);
    return (vector_bytes - address % vector_bytes) % vector_bytes / sizeof(Stored);
  }

  static HWY_INLINE V load(const Stored* from) { return Element::widen(hn::LoadU(DStored(), from)); }
  static HWY_INLINE V load(const Stored* from, std::size_t n) {
    return Element::widen(load_first(DStored(), from, n));
  }
  static HWY_INLINE void store(V v, Stored* to) {
    if constexpr (kPastCaches) {
      hn::Stream(Element::narrow(v), DStored(), to);
    } else {
      hn::StoreU(Element::narrow(v), DStored(), to);
    }
  }
  static HWY_INLINE void store(V v, Stored* to, std::size_t n) {
    store_first(Element::narrow(v), DStored(), to, n);
  }
  static HWY_INLINE V combine(V a, V b) { return Element::template combine<Op>(a, b); }

  /// Four independent chains hide the latency of the arithmetic.
  HWY_INLINE void group(std::size_t i, std::size_t lanes) const {
    const Stored* from = sources_[0] + i;
    V v0 = load(from), v1 = load(from + lanes), v2 = load(from + 2 * lanes), v3 = load(from + 3 * lanes);
    for (std::size_t s = 1; s < sources_.count(); ++s) {
      from = sources_[s] + i;
      v0 = combine(v0, load(from));
      v1 = combine(v1, load(from + lanes));
      v2 = combine(v2, load(from + 2 * lanes));
      v3 = combine(v3, load(from + 3 * lanes));
    }
    v0 = Element::finish(finish_, v0), v1 = Element::finish(finish_, v1);
    v2 = Element::finish(finish_, v2), v3 = Element::finish(finish_, v3);
    for (std::size_t d = 0; d < destinations_.count(); ++d) {
      Stored* to = destinations_[d] + i;
      store(v0, to);
      store(v1, to + lanes);
      store(v2, to + 2 * lanes);
      store(v3, to + 3 * lanes);
    }
  }

  HWY_INLINE void single(std::size_t i) const {
    V v = load(sources_[0] + i);
    for (std::size_t s = 1; s < sources_.count(); ++s) v = combine(v, load(sources_[s] + i));
    v = Element::finish(finish_, v);
    for (std::size_t d = 0; d < destinations_.count(); ++d) store(v, destinations_[d] + i);
  }

  /// `n` elements, fewer than a vector holds.
  HWY_INLINE void partial(std::size_t i, std::size_t n) const {
    V v = load(sources_[0] + i, n);
    for (std::size_t s = 1; s < sources_.count(); ++s) v = combine(v, load(sources_[s] + i, n));
    v = Element::finish(finish_, v);
    for (std::size_t d = 0; d < destinations_.count(); ++d) store(v, destinations_[d] + i, n);
  }

  Streams<const Stored*, kSources> sources_;
  Streams<Stored*, kDestinations> destinations_;
  std::size_t count_;
  bool ends_backwards_;
  Finish finish_;
};

template <class Element, class Op, class Finish = Keep>
void run(const Pass& pass) {
  Loop<Element, Op, Finish, 0, 0, false>(pass).run();
}

/// Whether every destination is apart from the sources, whose lines are in the caches anyhow, and starts
/// vectors where destination 0 does, as aligned stores need.
template <class Element>
bool can_bypass_caches(const Pass& pass) {
  const std::size_t vector_bytes = hn::Lanes(typename Element::DStored()) * sizeof(typename Element::Stored);
  const auto misalignment = [vector_bytes](const void* p) {
    return reinterpret_cast<std::uintptr_t>(p) % vector_bytes;
  };
  const std::size_t first = misalignment(pass.destinations[0]);
  if (first % sizeof(typename Element::Stored) != 0) return false;
  for (std::size_t d = 0; d < pass.destination_count; ++d) {
    if (misalignment(pass.destinations[d]) != first) return false;
    for (std::size_t s = 0; s < pass.source_count; ++s) {
      if (pass.sources[s] == pass.destinations[d]) return false;
    }
  }
  return true;
}

/// Loops of their own for all_reduce between two and four members, and for recv_reduce.
template <class Element, class Op, class Finish, bool kPastCaches>
void run_by_shape(const Pass& pass) {
  const std::size_t k = pass.source_count, m = pass.destination_count;
  if (k == 2 && m == 2) return Loop<Element, Op, Finish, 2, 2, kPastCaches>(pass).run();
  if (k == 4 && m == 4) return Loop<Element, Op, Finish, 4, 4, kPastCaches>(pass).run();
  if (k == 2 && m == 1) return Loop<Element, Op, Finish, 2, 1, kPastCaches>(pass).run();
  return Loop<Element, Op, Finish, 0, 0, kPastCaches>(pass).run();
}

/// For what training spends its time on: these get more loops than the other operators, which costs compile
/// time.
template <class Element, class Op, class Finish = Keep>
void run_often(const Pass& pass) {
  if constexpr (Element::kMemoryBound) {
    if (pass.past_caches && can_bypass_caches<Element>(pass))
      return run_by_shape<Element, Op, Finish, true>(pass);
    return run_by_shape<Element, Op, Finish, false>(pass);
  } else {
    return run<Element, Op, Finish>(pass);
  }
}

inline bool is_power_of_two(double positive) { return std::bit_cast<std::uint64_t>(positive) << 12 == 0; }

template <class Element>
void run_average(const Pass& pass) {
  using D = typename Element::D;
  if (!is_power_of_two(pass.divisor)) return run_often<Element, Sum, Divide<D>>(pass);
  // The reciprocal of a power of two is exact, so that the product is rounded as the quotient would be, and
  // costs a tenth.
  Pass scaled = pass;
  scaled.factor = 1.0 / pass.divisor;
  run_often<Element, Sum, Multiply<D>>(scaled);
}

/// Every row of a float type.
template <class Element>
void fill_float(KernelTable& table, DataType type) {
  table.at(type, ReduceOp::sum) = run_often<Element, Sum>;
  table.at(type, ReduceOp::premul_sum) = run_often<Element, Sum>;
  table.at(type, ReduceOp::avg) = run_average<Element>;
  table.at(type, ReduceOp::prod) = run<Element, Prod>;
  table.at(type, ReduceOp::min) = run_often<Element, Min>;
  table.at(type, ReduceOp::max) = run_often<Element, Max>;
  table.scale(type) = run<Element, Sum, Multiply<typename Element::D>>;
}

}  // namespace lockstep::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
