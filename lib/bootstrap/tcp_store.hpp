// Store over TCP, the client's side: "tcp://host:port".
#pragma once

#include <memory>
#include <string>

#include "lib/bootstrap/handshake.hpp"
#include "lib/bootstrap/store.hpp"
#include "lib/net/fd.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::internal {

/// Whom to reach, and as whom.
struct StoreClientOptions {
  HostPort server;
  std::string served_by{};  ///< "rank 0". May be empty.
  HandshakeKey key;
  std::int32_t rank = 0;
  std::int32_t world = 1;
  std::uint64_t process = 0;
  std::uint64_t group = 1;  ///< Whose part of the store it is for (GroupStore), and whose deaths it asks for.
};

/// A connection that has passed the handshake for `service`, made within `timeout`. While nobody listens yet,
/// or the name does not resolve yet, it tries again; a refusal is final. Once connected it waits for its turn
/// to the end, since another attempt would stand behind everybody. Says meanwhile, and at last, who is
/// missing since when. Blocks. The socket is non-blocking.
Result<Fd> connect_to_server(const StoreClientOptions& options, HandshakeService service,
                             std::chrono::milliseconds timeout, Env& env,
                             const WhileWaiting& while_waiting = {});

/// Connects within `timeout`. Each thread inside a call has a connection of its own, kept for the next call.
Result<std::unique_ptr<Store>> open_tcp_store(StoreClientOptions options, std::chrono::milliseconds timeout,
                                              Env& env, const WhileWaiting& while_waiting = {});

}  // namespace lockstep::internal
