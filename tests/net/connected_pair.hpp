// Sockets of this machine: two that are connected, what makes one of them vanish, and one that refuses.
#pragma once

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

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

/// A socket that has a port, and does not listen: nobody else can take the port, and it refuses.
inline Fd bind_to_loopback() {
  Fd bound(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(bound.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
  return bound;
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

/// A port where nobody listens, of those that the kernel gives to whoever connects: it begins with every
/// second one, and those that it gives to listeners are the others.
inline HostPort closed_callers_port() {
  for (;;) {
    HostPort at = local_address(listen_on_loopback());
    at.port ^= 1u;
    if (tcp_listen(at).ok()) return at;
  }
}
/// Calls after which such a port was the caller's own for sure: it goes through them in turn, but for a few.
constexpr int kMoreThanCallersPorts = 40'000;

/// Nothing that comes for the socket is looked at any more, nor answered, and nothing comes from it: it has
/// nothing to repeat, and asks for no signs of life, whose lack would make it say goodbye.
inline void cut_off(int socket) {
  int unacknowledged = 1;
  for (int i = 0; unacknowledged > 0 && i < 20'000; ++i, poll(nullptr, 0, 1))
    ASSERT_EQ(ioctl(socket, SIOCOUTQ, &unacknowledged), 0);
  sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop};
  ASSERT_EQ(setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
  const int off = 0;
  ASSERT_EQ(setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off), 0);
}

}  // namespace lockstep::internal
