// Shared memory among the ranks of one host: links over rings, and a domain.
#pragma once

#include <memory>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "transports/shm/shm_group.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// Sets up `group` (see attach_group: blocks, and is collective: it returns when every member called it) and
/// gives this rank's transport, whose links all exist from the start. Nothing blocks later but the first
/// resolve() of a peer's segment.
Result<std::unique_ptr<Transport>> make_shm_transport(const ShmGroup& group, Env& env);

}  // namespace lockstep::internal
