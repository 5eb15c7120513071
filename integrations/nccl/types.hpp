// NCCL's element types and operators in lockstep's terms.
#pragma once

#include "integrations/nccl/abi.hpp"
#include "lockstep/types.hpp"

namespace lockstep::nccl {

/// Throws Refusal for a value that is no type of the header.
DataType to_type(ncclDataType_t type);
/// Of the built-in operators.
ReduceOp to_op(ncclRedOp_t op);
/// One element that the host can read, as a number. Throws Refusal for an integer that is too large for it.
double read_scalar(const void* scalar, ncclDataType_t type);

}  // namespace lockstep::nccl
