// Moving bytes over connected stream sockets, and the options that a data connection wants. Nothing here
// blocks.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

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

/// Starts to connect to a numeric address; poll says POLLOUT when it has ended, then ask connect_error().
Result<Fd> start_connect(const HostPort& to);
/// errno of a connect that has ended; 0 = connected.
int connect_error(const Fd& socket) noexcept;

/// The next connection that waits on `listener`, or nothing. Connections that died in the queue are skipped;
/// an error means that the process or the machine is out of descriptors or memory.
Result<std::optional<Fd>> accept_connection(const Fd& listener);

/// Options of a data connection. `congestion`: name of a congestion control, empty = leave the system's.
/// Between hosts, a peer that vanished without a word is noticed within kSilenceLimit.
struct StreamOptions {
  std::string congestion;
  bool congestion_required =
      false;  ///< Whether a refused `congestion` is an error, which lists what is allowed.
  bool between_hosts = false;
};
Status set_stream_options(const Fd& socket, const StreamOptions& options);

/// Seconds without any answer of the peer's kernel after which a connection between hosts is broken. A
/// stopped process does not count: its kernel answers for it.
inline constexpr int kSilenceLimit = 3;

}  // namespace lockstep::internal
