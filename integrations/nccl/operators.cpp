#include "integrations/nccl/operators.hpp"

#include <algorithm>

#include "integrations/nccl/result.hpp"
#include "integrations/nccl/types.hpp"

namespace lockstep::nccl {

ncclRedOp_t OperatorTable::create_premul(const void* scalar, ncclDataType_t type,
                                         ncclScalarResidence_t residence) {
  if (scalar == nullptr) throw invalid_argument("scalar is NULL");
  to_type(type);
  if (!is_floating(type))
    throw invalid_usage("PreMulSum is supported for floating-point types only (docs/nccl.md)");
  PreMulSum made{type, {}};
  if (residence == ncclScalarHostImmediate) {
    made.options.scale = read_scalar(scalar, type);
  } else if (residence == ncclScalarDevice) {
    made.options.device_scale = scalar;
  } else {
    throw invalid_argument("residence " + std::to_string(static_cast<int>(residence)) +
                           " is none of ncclScalarResidence_t");
  }
  const std::lock_guard lock(mutex_);
  auto free = std::find(slots_.begin(), slots_.end(), std::nullopt);
  if (free == slots_.end()) free = slots_.emplace(slots_.end());
  *free = made;
  return static_cast<ncclRedOp_t>(ncclNumOps + (free - slots_.begin()));
}

std::size_t OperatorTable::slot_of(ncclRedOp_t handle) const {
  const auto slot = static_cast<std::size_t>(handle) - ncclNumOps;  // a built-in one wraps around
  if (slot < slots_.size() && slots_[slot]) return slot;
  throw invalid_argument("operator " + std::to_string(static_cast<int>(handle)) +
                         " is neither built in nor one that was made on this communicator and lives");
}

void OperatorTable::destroy(ncclRedOp_t handle) {
  const std::lock_guard lock(mutex_);
  slots_[slot_of(handle)].reset();
}

Operator OperatorTable::find(ncclRedOp_t handle, ncclDataType_t type) const {
  if (handle < ncclNumOps) return {to_op(handle), {}};
  const std::lock_guard lock(mutex_);
  const PreMulSum& made = *slots_[slot_of(handle)];
  if (made.type != type) throw invalid_argument("the operator was made for another datatype");
  return {ReduceOp::premul_sum, made.options};
}

}  // namespace lockstep::nccl
