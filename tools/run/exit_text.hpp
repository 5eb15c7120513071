// How a process ended, in words and as an exit code.
#pragma once

#include <string>

namespace lockstep::run {

/// "exited with code 3", "was killed by SIGSEGV (core dumped)"; `status` as from waitpid.
std::string exit_text(int status);
/// The exit code, or 128 + the signal.
int exit_code(int status);

}  // namespace lockstep::run
