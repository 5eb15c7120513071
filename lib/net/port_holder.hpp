// Who holds a TCP port of this machine.
#pragma once

#include <sys/socket.h>

#include <string>

namespace lockstep::internal {

/// "process 4711 (python3)" for the process that listens at `address`, or on its port at all addresses, in
/// this network namespace; "a process that this user may not see" when /proc shows the socket but not its
/// owner, "an unknown process" when it shows neither. Reads /proc/net/tcp, tcp6 and /proc/*/fd.
std::string describe_port_holder(const sockaddr& address);

}  // namespace lockstep::internal
