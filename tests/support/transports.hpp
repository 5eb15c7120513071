// The transports between processes that this build has and this machine can run.
#pragma once

#include <cstdlib>
#include <vector>

#include "transports/verbs/verbs_transport.hpp"

namespace lockstep::testing {

inline std::vector<const char*> transports_here() {
  std::vector<const char*> names{"shm", "tcp"};
#ifdef LOCKSTEP_HAVE_UCX
  names.push_back("ucx");
  ::setenv("UCX_TLS", "^posix", 0);  // UCX's files in /dev/shm stay where a test kills their process.
#endif
  // tools/test --rdma brings a device.
  if (internal::open_verbs(0).ok()) names.push_back("verbs");
  return names;
}

}  // namespace lockstep::testing
