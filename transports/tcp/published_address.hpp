// Where a rank listens for its peers, and how it tells them through the store.
#pragma once

#include <string>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/net/fd.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::internal {

/// As text: "10.0.0.1:41833 10.1.0.1:37221 2/2".
struct PublishedAddress {
  std::vector<HostPort> where;  ///< Best first, never empty.
  int sockets = 1;              ///< Connections that a link consists of.
  int rails = 1;                ///< Of the first so many addresses each has an interface, all as fast.
  std::string text() const;
  static Result<PublishedAddress> parse(const std::string& text);
};
/// The name under which ranks exchange their addresses.
inline constexpr const char* kPublishedName = "tcp";

/// Listens on free ports: of loopback when all members share a host, else of every usable interface
/// (usable_interfaces), at most kMaxAddresses; LOCKSTEP_IFNAME is followed on a single host, too. Several
/// hosts without a secret are refused unless LOCKSTEP_INSECURE=1.
struct Listeners {
  std::vector<Fd> sockets;
  int rails = 1;  ///< As PublishedAddress::rails.
};
Result<Listeners> listen_for_peers(const Session& session);

}  // namespace lockstep::internal
