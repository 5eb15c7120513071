// Loss: why a rank is believed lost.
#pragma once

#include <functional>
#include <string>

#include "lib/base/env.hpp"

namespace lockstep::internal {

struct Loss {
  int rank = -1;
  std::string evidence;  ///< "killed by SIGKILL", "connection reset", "exited with code 3"
};

/// A rank may notice a loss (a store or a process that has ended) before its session hears of it, with the
/// reason. Blocks until that is `heard`, at most 2 s.
void await_word(Env& env, const std::function<bool()>& heard);

}  // namespace lockstep::internal
