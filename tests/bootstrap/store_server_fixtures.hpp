// A TCP store's server, its clients, and sockets of those who are none.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "lib/base/env.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "lib/bootstrap/wire.hpp"
#include "tests/bootstrap/store_fixtures.hpp"

namespace lockstep::internal {

class StoreServerTest : public ::testing::Test {
 protected:
  StoreServerTest() : server_(start({})) {}

  std::unique_ptr<StoreServer> start(std::chrono::milliseconds grace) {
    StoreServerOptions options;
    options.key = key_;
    options.evidence_grace = grace;
    auto server = StoreServer::start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().message();
    return std::move(*server);
  }
  StoreClientOptions client(int rank, std::uint64_t group = 1) const {
    StoreClientOptions options;
    options.group = group;
    options.server = server_->address();
    options.key = key_;
    options.rank = rank;
    options.world = 4;
    return options;
  }
  std::unique_ptr<Store> open(int rank) {
    auto store = open_tcp_store(client(rank), kSoon, real_env());
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(*store);
  }
  Fd watch(int rank, std::uint64_t group = 1) {
    auto socket = connect_to_server(client(rank, group), HandshakeService::watch, kSoon, real_env());
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    return std::move(*socket);
  }
  /// A watch of `rank` that was answered, and the proof that it owes.
  std::pair<Fd, std::string> owing_watch(int rank);
  /// Until so many clients of group 1 are connected.
  void await_connections(std::size_t count) {
    for (int look = 0; look < 2000 && server_->connections(1) != count; ++look)
      sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(server_->connections(1), count);
  }
  Fd stranger() {
    auto socket = tcp_connect(server_->address(), kSoon, real_env());
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    return std::move(*socket);
  }

  const HandshakeKey key_ = make_handshake_key("job", "secret");
  std::unique_ptr<StoreServer> server_;
};

/// Reads until there are `bytes` or the stream ends.
inline std::string read_bytes(const Fd& socket, std::size_t bytes) {
  std::string text;
  pollfd entry{socket.get(), POLLIN, 0};
  while (text.size() < bytes && poll(&entry, 1, static_cast<int>(kSoon.count())) == 1) {
    std::array<char, 4096> part;
    const ssize_t count = recv(socket.get(), part.data(), std::min(part.size(), bytes - text.size()), 0);
    if (count <= 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
  }
  return text;
}

inline bool is_hung_up(const Fd& socket) {
  pollfd entry{socket.get(), POLLIN, 0};
  char byte = 0;
  return poll(&entry, 1, static_cast<int>(kSoon.count())) == 1 && recv(socket.get(), &byte, 1, 0) <= 0;
}

inline void say(const Fd& socket, std::string_view text) {
  ASSERT_EQ(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

inline std::pair<Fd, std::string> StoreServerTest::owing_watch(int rank) {
  HandshakeHello hello;
  hello.service = HandshakeService::watch;
  hello.rank = rank;
  hello.world = 4;
  hello.channel = 1;
  HandshakeClient handshake(key_, hello, "the server");
  Fd socket = stranger();
  say(socket, as_text(handshake.outgoing()));
  handshake.sent(kHelloBytes);
  handshake.consume(as_bytes(read_bytes(socket, kReplyBytes)));
  return {std::move(socket), std::string(as_text(handshake.outgoing()))};
}

inline StoreRequest next_notice(const Fd& socket) {
  StoreRequest none;
  none.loss = {-1, "the server hung up"};
  const std::string frame = read_bytes(socket, kFrameOverhead);
  if (frame.size() < kFrameOverhead) return none;
  std::uint32_t size = 0;
  WireReader(as_bytes(frame)).integer(size);
  const std::string body = read_bytes(socket, size);
  return decode_request(as_bytes(body)).value();
}

inline Loss next_loss(const Fd& socket) { return next_notice(socket).loss; }

inline void leave(const Fd& socket) {
  StoreRequest request;
  request.verb = StoreVerb::leave;
  say(socket, encode(request));
}

}  // namespace lockstep::internal
