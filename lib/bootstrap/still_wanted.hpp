// StillWanted: what ends a set-up before its time.
#pragma once

#include <functional>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"

namespace lockstep::internal {

/// Asked now and then while a group is set up: why that is to end, or ok. Empty: it is not.
using StillWanted = std::function<Status()>;

/// What that says of a loss that was `noticed` otherwise (a store or a process that has ended), about the
/// same time and with the reason. `noticed` where it says nothing.
Status explain_loss(const Status& noticed, const StillWanted& still_wanted, Env& env);

}  // namespace lockstep::internal
