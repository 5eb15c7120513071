// Loss: why a rank is believed lost.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lib/base/env.hpp"

namespace lockstep::internal {

struct Loss {
  int rank = -1;
  std::string evidence;  ///< "killed by SIGKILL", "connection reset", "exited with code 3"
};

/// A rank may notice a loss (a store or a process that has ended) before its session hears of it, with the
/// reason. Blocks until `heard` gives it, at most 2 s; nothing where it does not come.
std::optional<Loss> await_word(Env& env, const std::function<std::optional<Loss>()>& heard);

}  // namespace lockstep::internal
