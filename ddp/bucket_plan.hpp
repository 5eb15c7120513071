// Sizes of parameters, shared by the plan, the check and the memory of the buckets.
#pragma once

#include <cstddef>
#include <string>

#include "lib/base/status.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// Elements of a parameter: the product of its shape (1 for a scalar, 0 when a dimension is 0).
/// invalid_argument when elements or bytes do not fit half the address space.
Result<std::size_t> element_count(const Parameter& parameter);

/// How every message writes a parameter: `"fc1.weight" f32 [64, 256]`.
std::string describe(const Parameter& parameter);

}  // namespace lockstep::internal
