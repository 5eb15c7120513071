#include "tools/run/exit_text.hpp"

#include <string.h>
#include <sys/wait.h>

namespace lockstep::run {
namespace {

constexpr int kSignalBase = 128;  // As shells count.

}  // namespace

std::string exit_text(int status) {
  if (!WIFSIGNALED(status)) return "exited with code " + std::to_string(WEXITSTATUS(status));
  const char* name = sigabbrev_np(WTERMSIG(status));
  const std::string signal =
      name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(WTERMSIG(status));
  return "was killed by " + signal + (WCOREDUMP(status) ? " (core dumped)" : "");
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? kSignalBase + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace lockstep::run
