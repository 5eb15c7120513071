// What reduce() dispatches to: one kernel for each (type, op), resolved once for this machine's instruction
// set.
#pragma once

#include <cstddef>

#include "lockstep/types.hpp"

namespace lockstep::internal {

/// One pass over memory: every destination gets, element by element, the sources combined from left to right.
struct Pass {
  const void* const* sources;
  std::size_t source_count;  ///< At least 1.
  void* const* destinations;
  std::size_t destination_count;  ///< At least 1.
  std::size_t count;              ///< Elements.
  double divisor = 1;             ///< Of the avg kernels; above 0, whole for integers.
  double factor = 1;              ///< Of the scale kernels.
  bool past_caches = false;       ///< The destinations will not be read again from the caches.
  bool ends_backwards = false;    ///< As in Reduction.
};

using Kernel = void (*)(const Pass&);

class KernelTable {
 public:
  /// Null where (type, op) is not defined, and for ReduceOp::user.
  Kernel& at(DataType type, ReduceOp op) noexcept {
    return kernels_[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  }
  Kernel at(DataType type, ReduceOp op) const noexcept {
    return const_cast<KernelTable*>(this)->at(type, op);
  }
  /// One source, multiplied by `factor`; null but for real floats and integers.
  Kernel& scale(DataType type) noexcept { return scale_[static_cast<std::size_t>(type)]; }
  Kernel scale(DataType type) const noexcept { return scale_[static_cast<std::size_t>(type)]; }

 private:
  Kernel kernels_[kDataTypeCount][kReduceOpCount] = {};
  Kernel scale_[kDataTypeCount] = {};
};

/// The table of this machine, built at the first call. Thread-safe.
const KernelTable& kernel_table() noexcept;
/// Builds a table for the instruction set that Highway would choose now; tests narrow that choice.
KernelTable build_kernel_table();

/// Every defined row, in plain C++. The SIMD families below then replace the rows that they speed up.
void add_scalar_kernels(KernelTable& table);
void add_float_kernels(KernelTable& table);
void add_half_kernels(KernelTable& table);
void add_fp8_kernels(KernelTable& table);
void add_integer_kernels(KernelTable& table);

}  // namespace lockstep::internal
