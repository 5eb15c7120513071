// Two connected sockets of this machine.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include "lib/net/stream_io.hpp"

namespace lockstep::internal {

struct ConnectedPair {
  Fd client, server;
};

inline Fd listen_on_loopback() {
  auto listener = tcp_listen({"127.0.0.1", 0});
  EXPECT_TRUE(listener.ok());
  return std::move(*listener);
}

inline ConnectedPair connect_pair(const Fd& listener = listen_on_loopback()) {
  auto nobody = accept_connection(listener);
  EXPECT_TRUE(nobody.ok() && !*nobody) << "nobody called yet";
  auto client = start_connect(local_address(listener));
  EXPECT_TRUE(client.ok());
  pollfd entry{listener.get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 10'000), 1);
  auto server = accept_connection(listener);
  EXPECT_TRUE(server.ok() && *server);
  return {std::move(*client), std::move(**server)};
}

}  // namespace lockstep::internal
