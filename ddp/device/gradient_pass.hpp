// Passes over a bucket of gradients, thread by thread. Compiled by nvcc for GPUs and by the host's compiler
// for the host backend, which runs the threads one after the other. Everything is of a fixed shape, so that
// sums have the same bits on every device.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "lib/base/status.hpp"
#include "lib/reduce/element.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal::gradient_pass {

/// Squares are summed in so many places, which are then folded by kFolds threads, and those by one.
inline constexpr unsigned kThreads = 256, kBlocks = 128, kSlots = kThreads * kBlocks, kFolds = 256;

struct Arguments {
  DataType type;
  void* data;
  std::uint64_t count;  ///< Elements.
  std::uint64_t* word;  ///< scrub: the least index of an element that is not finite; all ones at first.
                        ///< hash: the sum, 0 at first.
  std::uint64_t base;   ///< scrub: index of the first element.
  bool keep;            ///< scrub: only looks.
  double* slots;        ///< square, fold: kSlots sums, zero at first.
  double max_norm;      ///< fold
  double* factor;       ///< fold: what clips the gradients; scale: what they are multiplied by.
  double* norm;         ///< fold: where the norm is wanted; may be null.
};

LOCKSTEP_BOTH bool is_finite(double value) { return value - value == 0; }

LOCKSTEP_BOTH void note_least(std::uint64_t* word, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  atomicMin(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
#else
  if (value < *word) *word = value;
#endif
}

LOCKSTEP_BOTH void add_to(std::uint64_t* word, std::uint64_t value) {
#ifdef __CUDA_ARCH__
  atomicAdd(reinterpret_cast<unsigned long long*>(word), static_cast<unsigned long long>(value));
#else
  *word += value;
#endif
}

/// The first element that is not finite is noted; all of them become zero.
struct Scrub {
  const Arguments& a;
  std::uint64_t thread, threads;
  template <class Element>
  LOCKSTEP_BOTH void operator()(std::uint64_t count) const {
    auto* const data = static_cast<typename Element::Stored*>(a.data);
    const std::uint64_t parts = count / a.count;  // Of an element: 2 for complex types.
    for (std::uint64_t i = thread; i < count; i += threads) {
      if (is_finite(static_cast<double>(Element::load(data[i])))) continue;
      if (!a.keep) data[i] = Element::store(0);
      note_least(a.word, a.base + i / parts);
    }
  }
};

struct Square {
  const Arguments& a;
  std::uint64_t thread;  ///< Of kSlots.
  template <class Element>
  LOCKSTEP_BOTH void operator()(std::uint64_t count) const {
    const auto* const data = static_cast<const typename Element::Stored*>(a.data);
    double sum = a.slots[thread];
    for (std::uint64_t i = thread; i < count; i += kSlots) {
      const auto value = static_cast<double>(Element::load(data[i]));
      sum += value * value;
    }
    a.slots[thread] = sum;
  }
};

struct Scale {
  const Arguments& a;
  std::uint64_t thread, threads;
  template <class Element>
  LOCKSTEP_BOTH void operator()(std::uint64_t count) const {
    const double factor = *a.factor;
    if (factor == 1) return;
    auto* const data = static_cast<typename Element::Stored*>(a.data);
    for (std::uint64_t i = thread; i < count; i += threads)
      data[i] = Element::store(element::scaled(Element::load(data[i]), factor));
  }
};

/// Every bit changes about half of the result's: the finaliser of splitmix64.
LOCKSTEP_BOTH std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// A sum of what each element's bits and place are mixed to: threads may add in any order. Detects accidents,
/// resists no attacker.
struct Hash {
  const Arguments& a;
  std::uint64_t thread, threads;
  template <class Element>
  LOCKSTEP_BOTH void operator()(std::uint64_t count) const {
    using Stored = typename Element::Stored;
    const auto* const data = static_cast<const Stored*>(a.data);
    std::uint64_t sum = 0;
    for (std::uint64_t i = thread; i < count; i += threads) {
      const Stored element = data[i];
      std::uint64_t bits = 0;
      std::memcpy(&bits, &element, sizeof element);
      sum += mixed(bits + (i + 1) * 0x9e3779b97f4a7c15u);
    }
    add_to(a.word, sum);
  }
};

LOCKSTEP_BOTH void scrub(const Arguments& a, std::uint64_t thread, std::uint64_t threads) {
  if (a.count > 0) element::with_floats(a.type, a.count, Scrub{a, thread, threads});
}
LOCKSTEP_BOTH void square(const Arguments& a, std::uint64_t thread) {
  element::with_floats(a.type, a.count, Square{a, thread});
}
LOCKSTEP_BOTH void scale(const Arguments& a, std::uint64_t thread, std::uint64_t threads) {
  element::with_floats(a.type, a.count, Scale{a, thread, threads});
}
LOCKSTEP_BOTH void hash(const Arguments& a, std::uint64_t thread, std::uint64_t threads) {
  element::with_floats(a.type, a.count, Hash{a, thread, threads});
}

/// Thread of kFolds: a run of slots becomes one number, in its first slot.
LOCKSTEP_BOTH void fold(const Arguments& a, std::uint64_t thread) {
  constexpr unsigned kRun = kSlots / kFolds;
  double sum = 0;
  for (unsigned i = 0; i < kRun; ++i) sum += a.slots[thread * kRun + i];
  a.slots[thread * kRun] = sum;
}

/// One thread, after all have folded.
template <class Root>
LOCKSTEP_BOTH void finish_fold(const Arguments& a, Root root) {
  constexpr unsigned kRun = kSlots / kFolds;
  double sum = 0;
  for (unsigned i = 0; i < kFolds; ++i) sum += a.slots[i * kRun];
  const double norm = root(sum);
  *a.factor = is_finite(norm) && norm > a.max_norm ? a.max_norm / norm : 1;
  if (a.norm != nullptr) *a.norm = norm;
}

// Each starts a kernel on a cudaStream_t; gives a cudaError_t. Only where CUDA is built.
int scrub_on_cuda(const void* arguments, void* stream);
int square_on_cuda(const void* arguments, void* stream);
int fold_on_cuda(const void* arguments, void* stream);
int scale_on_cuda(const void* arguments, void* stream);
int hash_on_cuda(const void* arguments, void* stream);
/// To the selected device.
Status load_on_cuda();

}  // namespace lockstep::internal::gradient_pass
