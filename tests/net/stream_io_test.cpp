// Transfers and options on real sockets.
#include "lib/net/stream_io.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "tests/net/connected_pair.hpp"

namespace lockstep::internal {
namespace {

int option(const Fd& socket, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(getsockopt(socket.get(), level, name, &value, &size), 0);
  return value;
}

TEST(StreamIo, MovesPiecesAndSaysHowItEnded) {
  ConnectedPair pair = connect_pair();
  std::array<std::byte, 8> got{};
  const Transfer nothing = receive_some(pair.server.get(), got);
  EXPECT_EQ(nothing.bytes, 0u);
  EXPECT_EQ(nothing.error, 0);
  EXPECT_FALSE(nothing.ended);

  const std::array<char, 4> text{'a', 'b', 'c', 'd'};
  const std::array parts{iovec{const_cast<char*>(text.data()), 1},
                         iovec{const_cast<char*>(text.data() + 1), 3}};
  EXPECT_EQ(send_some(pair.client.get(), parts).bytes, 4u);
  pollfd entry{pair.server.get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  const std::array into{iovec{got.data() + 4, 3}, iovec{got.data(), 1}};
  EXPECT_EQ(receive_some(pair.server.get(), into).bytes, 4u);
  EXPECT_EQ(static_cast<char>(got[4]), 'a');
  EXPECT_EQ(static_cast<char>(got[0]), 'd');

  pair.client.reset();
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  EXPECT_TRUE(receive_some(pair.server.get(), got).ended);
  Transfer sent{.bytes = 1};
  while (sent.error == 0)
    sent = send_some(pair.server.get(), got);  // The first one still finds the socket open.
  EXPECT_TRUE(sent.error == EPIPE || sent.error == ECONNRESET);
}

TEST(StreamIo, SaysWhyAConnectFailed) {
  auto listener = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  const HostPort closed = local_address(*listener);
  listener->reset();
  auto client = start_connect(closed);
  ASSERT_TRUE(client.ok());
  pollfd entry{client->get(), POLLOUT, 0};
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  EXPECT_EQ(connect_error(*client), ECONNREFUSED);
  EXPECT_FALSE(start_connect({"not-an-address", 1}).ok());
}

// See TcpSocket.NobodyReachesItself.
TEST(StreamIo, NobodyReachesItself) {
  const HostPort closed = closed_callers_port();
  for (int i = 0; i < kMoreThanCallersPorts; ++i) {
    auto client = start_connect(closed);
    if (!client.ok()) continue;
    pollfd entry{client->get(), POLLOUT, 0};
    ASSERT_EQ(poll(&entry, 1, 10'000), 1);
    ASSERT_NE(connect_error(*client), 0) << "at call " << i;
  }
}

TEST(StreamIo, SetsTheOptionsOfADataConnection) {
  const ConnectedPair pair = connect_pair();
  ASSERT_TRUE(set_stream_options(pair.client, {.congestion = "reno", .congestion_required = true}).ok());
  EXPECT_EQ(option(pair.client, IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(pair.client, SOL_SOCKET, SO_KEEPALIVE), 0);
  ASSERT_TRUE(set_stream_options(pair.server, {.congestion = {}, .between_hosts = true}).ok());
  EXPECT_EQ(option(pair.server, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(pair.server, IPPROTO_TCP, TCP_KEEPIDLE), 1);
  EXPECT_EQ(option(pair.server, IPPROTO_TCP, TCP_KEEPINTVL), 1);
  EXPECT_EQ(option(pair.server, IPPROTO_TCP, TCP_KEEPCNT), kSilenceLimit);
  // It would break connections to peers that are late.
  EXPECT_EQ(option(pair.server, IPPROTO_TCP, TCP_USER_TIMEOUT), 0);
}

TEST(StreamIo, ConnectionsBeginUnpaced) {
  const Fd listener = listen_on_loopback();
  start_unpaced(listener);
  const ConnectedPair pair = connect_pair(listener);
  EXPECT_EQ(congestion_of(pair.client), "reno");
  EXPECT_EQ(congestion_of(pair.server), "reno");
  ASSERT_TRUE(set_stream_options(pair.client, {}).ok());
  EXPECT_EQ(congestion_of(pair.client), "reno") << "inside a host it stays so";
}

TEST(StreamIo, OnlyNearConnectionsGiveUpPacing) {
  using std::chrono::microseconds;
  EXPECT_EQ(better_congestion("bbr", microseconds(80)), "cubic");
  EXPECT_EQ(better_congestion("bbr", microseconds(20'000)), "bbr");
  EXPECT_EQ(better_congestion("cubic", microseconds(80)), "cubic");
  EXPECT_EQ(better_congestion("dctcp", microseconds(80)), "dctcp");
}

TEST(StreamIo, AnUnknownCongestionControlIsAnErrorOnlyWhenItWasAskedFor) {
  const ConnectedPair pair = connect_pair();
  EXPECT_TRUE(set_stream_options(pair.client, {.congestion = "nosuch"}).ok());
  const Status status =
      set_stream_options(pair.client, {.congestion = "nosuch", .congestion_required = true});
  EXPECT_EQ(status.code(), ErrorCode::configuration);
  EXPECT_NE(status.message().find("\"nosuch\" is not available"), std::string::npos);
  EXPECT_NE(status.message().find("reno"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::internal
