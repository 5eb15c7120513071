// Which of this machine's addresses its peers may connect to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// An address of an interface that is up. An interface with several addresses appears several times.
struct InterfaceAddress {
  std::string name;     ///< "eth0"
  std::string address;  ///< Numeric, without brackets.
  bool loopback = false;
  bool v6 = false;
  std::int64_t megabits = 0;  ///< A second, as its driver says; 0 = it does not.
};

/// Usable addresses in the kernel's order; link-local ones are left out, because their scope means nothing to
/// a peer.
Result<std::vector<InterfaceAddress>> interface_addresses();

/// Which interfaces the user wants.
struct InterfaceFilter {
  std::string variable = "LOCKSTEP_IFNAME";  ///< Where the text came from, for errors.
  /// As NCCL_SOCKET_IFNAME: prefixes separated by commas; "=" in front: exact names; "^" in front: everything
  /// but these. Empty: the library chooses.
  std::string text;
};

/// LOCKSTEP_IFNAME; where that is not set, what other libraries were told: NCCL_SOCKET_IFNAME, then
/// GLOO_SOCKET_IFNAME (whose names are exact).
InterfaceFilter interface_filter_from_environment();

/// The addresses to publish, best first. Names that are asked for are taken whatever they are. Otherwise
/// loopback is never among them, nor are the bridges of containers and virtual machines (docker, virbr, br-,
/// cni, lxc), which look alike on every host; veth comes last. InfiniBand first, then by speed, IPv4 before
/// IPv6. Errors name what was there.
Result<std::vector<InterfaceAddress>> usable_interfaces(std::span<const InterfaceAddress> available,
                                                        const InterfaceFilter& filter);

}  // namespace lockstep::internal
