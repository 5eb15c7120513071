// TCP sockets by address text. Every socket made here is non-blocking and close-on-exec.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

inline constexpr char kBetweenHosts = ',';

/// A name or address, without the brackets of IPv6, and a port. Several of one host may stand there: they
/// count as one name that has all their addresses.
struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  /// "10.0.0.1:5000", "[::1]:5000", "[fd00::1,10.0.0.1]:5000".
  std::string text() const;
};

/// Parses "10.0.0.1:5000", "node-2:0", "[::1]:5000".
Result<HostPort> parse_host_port(std::string_view text);

/// Listens on every address of `at.host` that can be bound here, on one port: whoever looks the name up may
/// take any of them, and hosts differ in what they find first. At least one socket. Port 0 takes one that is
/// free at all of them (see local_address). A port that is taken is an error that names the process which
/// holds it, where /proc may be read. "::" hears IPv4 too.
Result<std::vector<Fd>> tcp_listen_everywhere(const HostPort& at);

/// As tcp_listen_everywhere, of a host that is an address and so has one.
Result<Fd> tcp_listen(const HostPort& at);

/// Connects within `timeout`, trying every address of `to.host` in turn, each with its share of the time that
/// is left; no second attempt. The error says of each address why not; ErrorCode::timeout when time ran out
/// on all, `system` and `out_of_memory` of what this process or host itself lacks, which does not come by
/// waiting, else peer_lost.
Result<Fd> tcp_connect(const HostPort& to, std::chrono::milliseconds timeout, Env& env);

/// Where a socket is bound, and what it is connected to. Port 0 and an empty host when the socket is neither.
HostPort local_address(const Fd& socket);
HostPort remote_address(const Fd& socket);

/// Whether a socket that was told to connect to `to` reaches itself: the kernel gave it the port that it
/// calls, where nobody listens, and TCP lets two calls that cross become one connection.
bool calls_itself(const Fd& socket, const sockaddr& to);

/// Whether connect(2) says by `error` that this host lets nobody call, whoever is there.
bool is_refused_here(int error);
/// What connect(2) to that address means by `error`.
std::string connect_failure_text(int error, const sockaddr& to);

/// Whether a socket is connected to a loopback address.
bool has_loopback_peer(const Fd& socket);

/// Whether `host` is an address, not a name.
bool is_numeric_address(const std::string& host);

/// Whether an address of `host` can be found; the error says why not. May ask DNS.
Status check_host(const std::string& host);

/// Whether the kernel says of every address of `host` that it is none of this machine's; false where that
/// cannot be found out. May ask DNS.
bool is_elsewhere(const std::string& host);

/// 127.0.0.1; ::1 where this machine has only that.
std::string loopback_address();

/// Whether `host` names only this machine's loopback addresses. May ask DNS.
bool is_loopback(const std::string& host);

}  // namespace lockstep::internal
