// Which programs run a call on a device. By rule, from what is known of such machines; nothing here is
// measured.
#pragma once

#include "collectives/select/choose.hpp"

namespace lockstep::internal {

/// What runs a call of this shape on a device: the programs that a measured cost model would rank, by rule.
/// `kernels_wait`: for one another, so that a phase costs no more than a kernel.
Result<Selection> choose_for_device(const CallFacts& facts, const Shape& shape, bool kernels_wait = false);

}  // namespace lockstep::internal
