// Variables of the environment that CUDA's driver reads when the process first uses it, and not again.
#pragma once

namespace lockstep::internal {

/// Sets them as the library needs them; what the user has set stays. Calls setenv, and nothing that needs a
/// program to have been started: a library's constructor may call it.
void set_driver_variables() noexcept;

}  // namespace lockstep::internal
