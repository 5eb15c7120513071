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

#include <bit>
#include <cstring>
#include <type_traits>

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

/// Base of the elements that are combined one vector of arithmetic lanes at a time.
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
  static constexpr bool kMemoryBound = true;
  using D = hn::ScalableTag<T>;  ///< The lanes of arithmetic.
  using V = hn::Vec<D>;          ///< What is combined at a time: lanes() elements.
  static HWY_INLINE std::size_t lanes() { return hn::Lanes(D()); }
  static HWY_INLINE V load(const T* from) { return hn::LoadU(D(), from); }
  static HWY_INLINE V load(const T* from, std::size_t n) { return load_first(D(), from, n); }
  static HWY_INLINE void store(V v, T* to) { hn::StoreU(v, D(), to); }
  static HWY_INLINE void store(V v, T* to, std::size_t n) { store_first(v, D(), to, n); }
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

/// `chosen`, or the operand that is NaN. What Min and Max themselves give for NaN depends on the instruction
/// set.
template <class V>
HWY_INLINE V or_nan(V a, V b, V chosen) {
  if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
    return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, chosen));
  } else {
    return chosen;
  }
}
struct Min {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return or_nan(a, b, hn::Min(a, b));
  }
};
struct Max {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return or_nan(a, b, hn::Max(a, b));
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
template <class Element, class Op, class Finish, std::size_t kSources, std::size_t kDestinations>
class Loop {
 public:
  using Stored = typename Element::Stored;
  using V = typename Element::V;

  explicit HWY_INLINE Loop(const Pass& pass)
      : sources_(pass.sources, pass.source_count),
        destinations_(pass.destinations, pass.destination_count),
        count_(pass.count),
        finish_(pass) {}

  HWY_INLINE void run() const {
    const std::size_t lanes = Element::lanes();
    std::size_t i = 0;
    if (count_ >= kVectorsWorthAligning * lanes) {
      i = elements_to_alignment(lanes * sizeof(Stored));
      if (i > 0) partial(0, i);
    }
    for (; i + 4 * lanes <= count_; i += 4 * lanes) group(i, lanes);
    for (; i + lanes <= count_; i += lanes) single(i);
    if (i < count_) partial(i, count_ - i);
  }

 private:
  /// Vectors that straddle cache lines cost up to a fifth of the bandwidth; below this many the extra step
  /// costs more.
  static constexpr std::size_t kVectorsWorthAligning = 64;

  /// Elements before the first one of destination 0 that starts a vector; the other buffers mostly lie alike.
  HWY_INLINE std::size_t elements_to_alignment(std::size_t vector_bytes) const {
    const auto address = reinterpret_cast<std::uintptr_t>(destinations_[0]);
    return (vector_bytes - address % vector_bytes) % vector_bytes / sizeof(Stored);
  }

  /// Four independent chains hide the latency of the arithmetic.
  HWY_INLINE void group(std::size_t i, std::size_t lanes) const {
    const Stored* from = sources_[0] + i;
    V v0 = Element::load(from), v1 = Element::load(from + lanes);
    V v2 = Element::load(from + 2 * lanes), v3 = Element::load(from + 3 * lanes);
    for (std::size_t s = 1; s < sources_.count(); ++s) {
      from = sources_[s] + i;
      v0 = Element::template combine<Op>(v0, Element::load(from));
      v1 = Element::template combine<Op>(v1, Element::load(from + lanes));
      v2 = Element::template combine<Op>(v2, Element::load(from + 2 * lanes));
      v3 = Element::template combine<Op>(v3, Element::load(from + 3 * lanes));
    }
    v0 = Element::finish(finish_, v0), v1 = Element::finish(finish_, v1);
    v2 = Element::finish(finish_, v2), v3 = Element::finish(finish_, v3);
    for (std::size_t d = 0; d < destinations_.count(); ++d) {
      Stored* to = destinations_[d] + i;
      Element::store(v0, to);
      Element::store(v1, to + lanes);
      Element::store(v2, to + 2 * lanes);
      Element::store(v3, to + 3 * lanes);
    }
  }

  HWY_INLINE void single(std::size_t i) const {
    V v = Element::load(sources_[0] + i);
    for (std::size_t s = 1; s < sources_.count(); ++s)
      v = Element::template combine<Op>(v, Element::load(sources_[s] + i));
    v = Element::finish(finish_, v);
    for (std::size_t d = 0; d < destinations_.count(); ++d) Element::store(v, destinations_[d] + i);
  }

  /// `n` elements, fewer than a vector holds.
  HWY_INLINE void partial(std::size_t i, std::size_t n) const {
    V v = Element::load(sources_[0] + i, n);
    for (std::size_t s = 1; s < sources_.count(); ++s)
      v = Element::template combine<Op>(v, Element::load(sources_[s] + i, n));
    v = Element::finish(finish_, v);
    for (std::size_t d = 0; d < destinations_.count(); ++d) Element::store(v, destinations_[d] + i, n);
  }

  Streams<const Stored*, kSources> sources_;
  Streams<Stored*, kDestinations> destinations_;
  std::size_t count_;
  Finish finish_;
};

template <class Element, class Op, class Finish = Keep>
void run(const Pass& pass) {
  Loop<Element, Op, Finish, 0, 0>(pass).run();
}

/// The same with loops of their own for in-place all_reduce between two and four members, and for
/// recv_reduce. For sums of elements that memory is slower than; each loop costs compile time.
template <class Element, class Finish = Keep>
void run_sum(const Pass& pass) {
  if constexpr (Element::kMemoryBound) {
    const std::size_t k = pass.source_count, m = pass.destination_count;
    if (k == 2 && m == 2) return Loop<Element, Sum, Finish, 2, 2>(pass).run();
    if (k == 4 && m == 4) return Loop<Element, Sum, Finish, 4, 4>(pass).run();
    if (k == 2 && m == 1) return Loop<Element, Sum, Finish, 2, 1>(pass).run();
  }
  return run<Element, Sum, Finish>(pass);
}

template <class Element>
void run_average(const Pass& pass) {
  using D = typename Element::D;
  if (!std::has_single_bit(pass.divisor)) return run_sum<Element, Divide<D>>(pass);
  // The reciprocal of a power of two is exact, so that the product is rounded as the quotient would be, and
  // costs a tenth.
  Pass scaled = pass;
  scaled.factor = 1.0 / pass.divisor;
  run_sum<Element, Multiply<D>>(scaled);
}

/// Every row of a float type.
template <class Element>
void fill_float(KernelTable& table, DataType type) {
  table.at(type, ReduceOp::sum) = run_sum<Element>;
  table.at(type, ReduceOp::premul_sum) = run_sum<Element>;
  table.at(type, ReduceOp::avg) = run_average<Element>;
  table.at(type, ReduceOp::prod) = run<Element, Prod>;
  table.at(type, ReduceOp::min) = run<Element, Min>;
  table.at(type, ReduceOp::max) = run<Element, Max>;
  table.scale(type) = run<Element, Sum, Multiply<typename Element::D>>;
}

}  // namespace lockstep::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
