#include "integrations/nccl/operators.hpp"

#include <atomic>
#include <string>

#include "integrations/nccl/result.hpp"
#include "integrations/nccl/types.hpp"

namespace lockstep::nccl {
namespace {

/// Above the built-in ones, and again from there when all of the type are used up.
ncclRedOp_t next_handle() {
  static std::atomic<unsigned> drawn{0};
  return static_cast<ncclRedOp_t>(ncclNumOps + drawn++ % (ncclMaxRedOp - ncclNumOps));
}

}  // namespace

ncclRedOp_t OperatorTable::create_premul(const void* scalar, ncclDataType_t type,
                                         ncclScalarResidence_t residence) {
  if (scalar == nullptr) throw invalid_argument("scalar is NULL");
  to_type(type);
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
  ncclRedOp_t handle = next_handle();
  while (!made_.try_emplace(handle, made).second) handle = next_handle();
  return handle;
}

OperatorTable::Made::const_iterator OperatorTable::at(ncclRedOp_t handle) const {
  if (const auto found = made_.find(handle); found != made_.end()) return found;
  throw invalid_argument("operator " + std::to_string(static_cast<int>(handle)) +
                         " is neither built in nor one that was made on this communicator and lives");
}

void OperatorTable::destroy(ncclRedOp_t handle) {
  const std::lock_guard lock(mutex_);
  made_.erase(at(handle));
}

Operator OperatorTable::find(ncclRedOp_t handle, ncclDataType_t type) const {
  if (handle < ncclNumOps) return {to_op(handle), {}};
  const std::lock_guard lock(mutex_);
  const PreMulSum& made = at(handle)->second;
  if (made.type != type) throw invalid_argument("the operator was made for another datatype");
  return {ReduceOp::premul_sum, made.options};
}

}  // namespace lockstep::nccl
