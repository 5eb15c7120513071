// On real sockets: a peer whose kernel answers is never taken for silent, one whose kernel does not is.
#include "lib/net/silence_watch.hpp"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "lib/net/stream_io.hpp"

namespace lockstep::internal {
namespace {

struct Connection {
  Fd from, to;
};

Connection connect_between_hosts() {
  auto listener = tcp_listen({"127.0.0.1", 0});
  EXPECT_TRUE(listener.ok());
  auto from = start_connect(local_address(*listener));
  EXPECT_TRUE(from.ok());
  pollfd entry{listener->get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 10'000), 1);
  auto to = accept_connection(*listener);
  EXPECT_TRUE(to.ok() && *to);
  Connection connection{std::move(*from), std::move(**to)};
  for (const Fd* socket : {&connection.from, &connection.to})
    EXPECT_TRUE(set_stream_options(*socket, {.congestion = {}, .between_hosts = true}).ok());
  return connection;
}

/// Nothing that comes for the socket is looked at any more, nor answered.
void cut_off(const Fd& socket) {
  sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog program{1, &drop};
  ASSERT_EQ(setsockopt(socket.get(), SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), 0);
}

/// Sends until no more is taken; how much was.
std::size_t fill(const Fd& socket) {
  const std::vector<std::byte> block(1 << 20);
  std::size_t sent = 0;
  for (pollfd entry{socket.get(), POLLOUT, 0}; poll(&entry, 1, 200) == 1;) {
    const Transfer some = send_some(socket.get(), block);
    EXPECT_EQ(some.error, 0);
    if (some.error != 0) break;
    sent += some.bytes;
  }
  return sent;
}

TEST(SilenceWatch, APeerThatOnlyDoesNotReadIsWell) {
  const Connection connection = connect_between_hosts();
  SilenceWatch watch(Reactor::instance(), real_env());
  watch.add(connection.from.get());
  const std::size_t sent = fill(connection.from);
  std::this_thread::sleep_for(std::chrono::seconds(2 * kSilenceLimit));
  EXPECT_FALSE(watch.fell_silent(connection.from.get()));
  std::vector<std::byte> into(1 << 20);
  std::size_t came = 0;
  for (pollfd entry{connection.to.get(), POLLIN, 0}; came < sent && poll(&entry, 1, 30'000) == 1;) {
    const Transfer some = receive_some(connection.to.get(), into);
    ASSERT_EQ(some.error, 0);
    ASSERT_FALSE(some.ended);
    came += some.bytes;
  }
  EXPECT_EQ(came, sent);
  watch.remove(connection.from.get());
}

TEST(SilenceWatch, APeerThatDoesNotAnswerIsNoticed) {
  const Connection connection = connect_between_hosts();
  SilenceWatch watch(Reactor::instance(), real_env());
  watch.add(connection.from.get());
  cut_off(connection.to);
  ASSERT_GT(fill(connection.from), 0u);
  std::array<std::byte, 1> into{};
  pollfd entry{connection.from.get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 10 * kSilenceLimit * 1000), 1) << "nobody was told";
  EXPECT_TRUE(watch.fell_silent(connection.from.get()));
  EXPECT_TRUE(receive_some(connection.from.get(), into).ended);
  EXPECT_EQ(send_some(connection.from.get(), into).error, EPIPE);
  watch.remove(connection.from.get());
}

TEST(SilenceWatch, APeerThatFallsSilentWithAFullWindowIsNoticed) {
  const Connection connection = connect_between_hosts();
  SilenceWatch watch(Reactor::instance(), real_env());
  watch.add(connection.from.get());
  ASSERT_GT(fill(connection.from), 0u);
  cut_off(connection.to);
  pollfd entry{connection.from.get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 10 * kSilenceLimit * 1000), 1) << "nobody was told";
  EXPECT_TRUE(watch.fell_silent(connection.from.get()));
  watch.remove(connection.from.get());
}

}  // namespace
}  // namespace lockstep::internal
