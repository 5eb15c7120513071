// Hosts of a test on one machine: ranks with different ids share no memory and talk over loopback.
#pragma once

#include <cstdlib>
#include <string>

namespace lockstep::testing {

/// For this process, before it joins.
inline void live_on_host(int host) {
  ::setenv("LOCKSTEP_HOST_ID", std::to_string(host).c_str(), 1);
  ::setenv("LOCKSTEP_IFNAME", "=lo", 1);
  ::setenv("LOCKSTEP_TCP_CONGESTION", "reno", 1);  // As ranks of one host do: bbr paces loopback down.
}

}  // namespace lockstep::testing
