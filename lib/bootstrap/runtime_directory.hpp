// The directory where ranks of one user on one host meet: $XDG_RUNTIME_DIR/lockstep, or
// /tmp/lockstep-UID where that directory is missing or another user's.
#pragma once

#include <string>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// Its path. Created if needed, and refused unless it belongs to this user and is closed to all others (mode
/// 0700).
Result<std::string> runtime_directory();

}  // namespace lockstep::internal
