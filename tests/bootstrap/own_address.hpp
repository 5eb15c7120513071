// An address to listen on that no other test takes.
#pragma once

#include <unistd.h>

#include <string>

namespace lockstep::internal {

/// This test process's alone: all of 127/8 is loopback, and pids are unique.
inline std::string own_address() {
  static int port = 20'000;
  const int pid = getpid();
  return "127." + std::to_string(64 + ((pid >> 16) & 63)) + "." + std::to_string((pid >> 8) & 255) + "." +
         std::to_string(pid & 255) + ":" + std::to_string(++port);
}

}  // namespace lockstep::internal
