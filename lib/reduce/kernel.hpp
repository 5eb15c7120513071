// What reduce() dispatches to: one kernel for each (type, op), resolved once for this machine's instruction
// set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/types.hpp"

namespace lockstep::internal {

/// One pass over memory: every destination gets, element by element, the sources combined from left to right.
struct Pass {
  const void* const* sources;
  std::size_t source_count;  ///< At least 1.
  void* const* destinations;
  std::size_t destination_count;  ///< At least 1.
  std::size_t count;              ///< Elements.
  std::uint32_t divisor;          ///< Read by the avg kernels only; at least 1.
};

using Kernel = void (*)(const Pass&);

/// Null where (type, op) is not defined, and for ReduceOp::user.
class KernelTable {
 public:
  Kernel& at(DataType type, ReduceOp op) noexcept {
    return kernels_[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)];
  }
  Kernel at(DataType type, ReduceOp op) const noexcept {
    return const_cast<KernelTable*>(this)->at(type, op);
  }

 private:
  Kernel kernels_[kDataTypeCount][kReduceOpCount] = {};
};

/// The table of this machine, built at the first call. Thread-safe.
const KernelTable& kernel_table() noexcept;
/// Builds a table for the instruction set that Highway would choose now; tests narrow that choice.
KernelTable build_kernel_table();

/// Each family fills its rows.
void add_scalar_kernels(KernelTable& table);

}  // namespace lockstep::internal
