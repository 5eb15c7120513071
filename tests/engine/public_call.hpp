// A CollectiveCase as a call of the public API.
#pragma once

#include "lockstep/lockstep.hpp"
#include "tests/engine/call_buffers.hpp"

namespace lockstep::internal {

/// Starts `c` on `communicator`. `options` may name an algorithm; scale and user operator come from the case,
/// which must outlive the work when it has a user operator.
Work start_public(Communicator& communicator, const CollectiveCase& c, const CallBuffers& buffers,
                  const CallOptions& options = {});
/// The same in its blocking form, which has a shorter path of its own.
void run_public(Communicator& communicator, const CollectiveCase& c, const CallBuffers& buffers,
                const CallOptions& options = {});

}  // namespace lockstep::internal
