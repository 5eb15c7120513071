// The factor of a premul_sum that lies on the device, as the host applies it.
#pragma once

#include "lib/base/status.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal {

/// `element`: what was copied from there, of `type`. not_supported: a number that no double holds.
Result<double> host_factor(DataType type, const void* element);

}  // namespace lockstep::internal
