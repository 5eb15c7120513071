// Where a rank listens for its peers, and how it tells them through the store.
#pragma once

#include <string>

#include "lib/base/status.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/net/fd.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::internal {

/// As text: "10.0.0.1:41833 2".
struct PublishedAddress {
  HostPort where;
  int sockets = 1;  ///< Connections that a link consists of.
  std::string text() const;
  static Result<PublishedAddress> parse(const std::string& text);
};
/// The name under which ranks exchange their addresses.
inline constexpr const char* kPublishedName = "tcp";
/// The store's key of a rank's address.
std::string published_key(int rank);

/// Listens on a free port: of loopback when all members share a host, else of the interface that
/// LOCKSTEP_IFNAME chooses (which it also does for a single host when set). Several hosts without a secret
/// are refused unless LOCKSTEP_INSECURE=1.
Result<Fd> listen_for_peers(const Session& session);

}  // namespace lockstep::internal
