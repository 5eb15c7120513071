// A table that repeats over a buffer, as a kernel writes it and compares it. Compiled by nvcc for GPUs and by
// the host's compiler for the host backend.
#pragma once

#include <cstdint>

#include "lib/base/both.hpp"

namespace lockstep::bench {

struct PatternArguments {
  void* buffer;
  const void* table;  ///< One period.
  std::uint64_t elements, period;
  std::uint32_t element_bytes;  ///< 1, 2, 4, 8 or 16.
  std::uint64_t* wrong;         ///< Elements that differ are added to it; null: the pattern is written.
};

struct Sixteen {
  std::uint64_t half[2];
  LOCKSTEP_BOTH bool operator!=(const Sixteen& other) const {
    return half[0] != other.half[0] || half[1] != other.half[1];
  }
};

/// The part of `thread` out of `threads`: elements that differ.
template <class Element>
LOCKSTEP_BOTH std::uint64_t run_pattern(const PatternArguments& a, std::uint64_t thread,
                                        std::uint64_t threads) {
  Element* const buffer = static_cast<Element*>(a.buffer);
  const Element* const table = static_cast<const Element*>(a.table);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = thread; i < a.elements; i += threads) {
    const Element expected = table[i % a.period];
    if (a.wrong == nullptr) {
      buffer[i] = expected;
    } else {
      wrong += buffer[i] != expected ? 1 : 0;
    }
  }
  return wrong;
}

LOCKSTEP_BOTH std::uint64_t run_pattern(const PatternArguments& a, std::uint64_t thread,
                                        std::uint64_t threads) {
  switch (a.element_bytes) {
    case 1:
      return run_pattern<std::uint8_t>(a, thread, threads);
    case 2:
      return run_pattern<std::uint16_t>(a, thread, threads);
    case 4:
      return run_pattern<std::uint32_t>(a, thread, threads);
    case 8:
      return run_pattern<std::uint64_t>(a, thread, threads);
    default:
      return run_pattern<Sixteen>(a, thread, threads);
  }
}

/// Starts the kernel on a cudaStream_t; gives a cudaError_t. Only where CUDA is built.
int pattern_on_cuda(const void* arguments, void* stream);

}  // namespace lockstep::bench
