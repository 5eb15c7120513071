// What this process runs on.
#pragma once

#include <string>

namespace lockstep::internal {

/// "AMD EPYC 7763 64-Core Processor", or the architecture where the system does not say more.
std::string processor_name();
/// "6.1.0-18-amd64"
std::string kernel_release();
/// Those of the machine, whatever this process may run on (allowed_cores()).
int online_cores();

}  // namespace lockstep::internal
