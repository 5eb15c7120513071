// The transports between processes that this build has and any machine can run.
#pragma once

#include <vector>

namespace lockstep::testing {

inline std::vector<const char*> transports_here() {
  std::vector<const char*> names{"shm", "tcp"};
#ifdef LOCKSTEP_HAVE_UCX
  names.push_back("ucx");
#endif
  return names;
}

}  // namespace lockstep::testing
