// The operators that a program made with ncclRedOpCreatePreMulSum on one communicator.
#pragma once

#include <map>
#include <mutex>

#include "integrations/nccl/abi.hpp"
#include "lockstep/device.hpp"

namespace lockstep::nccl {

/// What a reduction is called with.
struct Operator {
  ReduceOp op = ReduceOp::sum;
  DeviceCallOptions options;
};

/// Thread-safe. No two operators of a process have the same handle, so that one of another communicator, or
/// one that is destroyed, is refused.
class OperatorTable {
 public:
  ncclRedOp_t create_premul(const void* scalar, ncclDataType_t type, ncclScalarResidence_t residence);
  /// Throws Refusal for what is not an operator of this table.
  void destroy(ncclRedOp_t handle);
  /// Built-in operators too. Throws Refusal when the operator was made for another type.
  Operator find(ncclRedOp_t handle, ncclDataType_t type) const;

 private:
  struct PreMulSum {
    ncclDataType_t type;
    DeviceCallOptions options;
  };
  using Made = std::map<ncclRedOp_t, PreMulSum>;
  Made::const_iterator at(ncclRedOp_t handle) const;  ///< Under the lock.

  mutable std::mutex mutex_;
  Made made_;
};

}  // namespace lockstep::nccl
