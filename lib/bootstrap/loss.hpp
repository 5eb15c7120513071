// Loss: why a rank is believed lost.
#pragma once

#include <string>

namespace lockstep::internal {

struct Loss {
  int rank = -1;
  std::string evidence;  ///< "killed by SIGKILL", "connection reset", "exited with code 3"
};

}  // namespace lockstep::internal
