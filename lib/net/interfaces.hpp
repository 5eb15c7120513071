// Which of this machine's addresses its peers should connect to.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// An address of an interface that is up. An interface with several addresses appears several times.
struct InterfaceAddress {
  std::string name;     ///< "eth0"
  std::string address;  ///< Numeric, without brackets.
  bool loopback = false;
  bool v6 = false;
};

/// Usable addresses in the kernel's order; link-local IPv6 is left out, because its scope means nothing to a
/// peer.
Result<std::vector<InterfaceAddress>> interface_addresses();

/// Picks the address to publish. `filter` has the syntax of NCCL_SOCKET_IFNAME: prefixes separated by commas;
/// "=" in front: exact names;
/// "^" in front: everything but these. Without a filter: never loopback; container and virtual-machine
/// bridges (docker, veth, virbr, br-, cni, lxc) only if nothing else is there; InfiniBand first. IPv4 before
/// IPv6. Errors name what was there.
Result<InterfaceAddress> choose_interface(std::span<const InterfaceAddress> available,
                                          std::string_view filter);

}  // namespace lockstep::internal
