// How many descriptors this process may have open.
#pragma once

#include <sys/resource.h>

namespace lockstep::internal {

/// Raises the limit as far as the system allows, which shells do not by themselves. Returns what it was, for
/// programs started from here: they may count on the usual one (select(2)).
rlimit raise_descriptor_limit();

}  // namespace lockstep::internal
