// Which programs run a call on a device. By rule, from what is known of such machines and was
// measured on one GPU (docs/gpu.md).
#pragma once

#include "collectives/select/choose.hpp"

namespace lockstep::internal {

/// What the choice rests on, beside the call.
struct DeviceGround {
  bool kernels_wait = false;  ///< For one another, so that a phase costs no more than a kernel.
  bool take_turns = false;    ///< As in ModeDecision.
};

/// What runs a call of this shape on a device: the programs that a measured cost model would rank, by rule.
Result<Selection> choose_for_device(const CallFacts& facts, const Shape& shape, DeviceGround ground);

}  // namespace lockstep::internal
