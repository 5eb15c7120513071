// The operators that a program made with ncclRedOpCreatePreMulSum on one communicator.
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "integrations/nccl/abi.hpp"
#include "lockstep/device.hpp"

namespace lockstep::nccl {

/// What a reduction is called with.
struct Operator {
  ReduceOp op = ReduceOp::sum;
  DeviceCallOptions options;
};

/// Thread-safe. A handle is ncclNumOps + a slot; freed slots are used again.
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
  std::size_t slot_of(ncclRedOp_t handle) const;  ///< Under the lock.

  mutable std::mutex mutex_;
  std::vector<std::optional<PreMulSum>> slots_;
};

}  // namespace lockstep::nccl
