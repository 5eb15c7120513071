// StillWanted: what ends a set-up before its time.
#pragma once

#include <functional>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// Asked now and then while a group is set up: why that is to end, or ok. Empty: it is not.
using StillWanted = std::function<Status()>;

}  // namespace lockstep::internal
