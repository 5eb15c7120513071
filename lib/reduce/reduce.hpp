// Reduction kernels: k sources in one pass, written to m destinations, with SIMD chosen at run time
// (Highway).
#pragma once

#include <cstddef>
#include <span>

#include "lib/base/status.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal {

/// Whether (type, op) is defined; the error names both and says what to use instead ("band needs an integer
/// type, not f32").
Status check_reduction(DataType type, ReduceOp op);

/// One reduction: for every destination d, d[i] = finish(sources[0][i] op sources[1][i] op ...), combined
/// strictly from left to right, with f32 accumulation for f16, bf16 and fp8. Ownership: reads and writes only
/// [0, count) of each buffer. A source may be the same address as a destination (in place); partial overlap
/// is not allowed. premul_sum reduces as sum (inputs are scaled beforehand by scale_copy).
struct Reduction {
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  const UserOp* user = nullptr;  ///< For ReduceOp::user.
  std::size_t count = 0;
  /// For avg: what the value written is divided by, whole for integers; 0 or 1 = no division (yet).
  double divisor = 0;
  /// The operation that this is a part of moves too much (nontemporal_threshold()) for its results to be read
  /// again from the caches: write past them. Has no effect in place.
  bool past_caches = false;
  /// What lies behind the destinations is another core's to write. A processor fetches ahead across the end
  /// of what it works on, and would take the first lines there from that core at every call: so the last page
  /// is worked on from its end.
  bool ends_backwards = false;
};

/// k >= 1 sources, m >= 1 destinations. k == 1 copies (and divides). No exceptions but those of a user's op
/// pass through. Like scale_copy() in standard arithmetic (lib/base/standard_floats.hpp), a user's op too.
void reduce(const Reduction& reduction, std::span<const void* const> sources,
            std::span<void* const> destinations);

/// output[i] = input[i] * factor, for real floats and integers (premul_sum), of which the factor is whole.
/// In place allowed.
void scale_copy(DataType type, const void* input, void* output, std::size_t count, double factor);

/// The name of the instruction set in use ("AVX3_SPR", "NEON"), for reports.
const char* simd_target() noexcept;

}  // namespace lockstep::internal
