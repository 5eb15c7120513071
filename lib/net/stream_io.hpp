// Moving bytes over connected stream sockets, and the options that a data connection wants. Nothing here
// blocks.
#pragma once

#include <sys/uio.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::internal {

/// What one call moved. All zero: it would block, try again when poll says so.
struct Transfer {
  std::size_t bytes = 0;
  int error = 0;       ///< errno of a final failure.
  bool ended = false;  ///< Receiving: the peer closed its side in good order.
};

/// One system call each, repeated only when a signal interrupted it. Never raises SIGPIPE. Parts must not be
/// empty altogether.
Transfer send_some(int fd, std::span<const std::byte> bytes) noexcept;
Transfer send_some(int fd, std::span<const iovec> parts) noexcept;
Transfer receive_some(int fd, std::span<std::byte> into) noexcept;
Transfer receive_some(int fd, std::span<const iovec> parts) noexcept;

/// Before a socket listens or connects. Linux never takes the timer of a pacing congestion control (bbr) off
/// a connection that began with it, whatever replaces it: after a pause that holds each message back for as
/// long as the one before it took. set_stream_options gives such a socket what it shall have; a connection
/// that is accepted begins as its listener.
void start_unpaced(const Fd& socket) noexcept;
/// The name of a socket's congestion control; empty where it has none.
std::string congestion_of(const Fd& socket);

/// Starts, unpaced, to connect to a numeric address; poll says POLLOUT when it has ended, then ask
/// connect_error(). Error `system`: this process or machine is out of descriptors or memory, or may not call;
/// `peer_lost`: there is no way to that address.
Result<Fd> start_connect(const HostPort& to);
/// errno of a connect that has ended; 0 = connected.
int connect_error(const Fd& socket) noexcept;

/// An error where this process is refused to accept connections, by a filter of system calls (seccomp): its
/// peers would wait for an answer until their deadlines.
Status check_may_accept();

/// The next connection that waits on `listener`, or nothing. Connections that died in the queue are skipped;
/// an error means that the process or the machine is out of descriptors or memory, or may not accept.
Result<std::optional<Fd>> accept_connection(const Fd& listener);

/// What goes before the system's `usual` congestion control on a connection of this round trip: bbr paces by
/// timers, which costs a near connection twice its time and gives it nothing, since its queues are short.
std::string_view better_congestion(std::string_view usual, std::chrono::microseconds round_trip) noexcept;
/// A round trip within a building.
inline constexpr std::chrono::microseconds kNear{1000};

/// Options of a data connection that began unpaced. `congestion`: name of a congestion control; empty
/// chooses: inside a host it stays as it began, between hosts it gets the better one. Between hosts, the
/// kernel breaks an idle connection whose peer vanished without a word.
struct StreamOptions {
  std::string congestion;
  /// Whether a refused `congestion` is an error, which lists what is allowed.
  bool congestion_required = false;
  bool between_hosts = false;
};
Status set_stream_options(const Fd& socket, const StreamOptions& options);
/// The last of these alone, for a connection that may be one between hosts: nothing where the peer has a
/// loopback address.
Status notice_vanished_peer(const Fd& socket);

/// Seconds without any answer of the peer's kernel after which a connection between hosts is broken. A
/// stopped process does not count: its kernel answers for it.
inline constexpr int kSilenceLimit = 3;
/// Whether that is so, and half a second more for an answer to what was asked last, while something is on its
/// way to the peer (kernels before Linux 6.15 ask a peer that reads nothing ever more seldom, and so know
/// later).
bool is_silent(int fd) noexcept;
/// What to say then.
std::string silence_text();

}  // namespace lockstep::internal
