// On real sockets: a peer whose kernel answers is never taken for silent, one whose kernel does not is.
#include "lib/net/silence_watch.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/net/connected_pair.hpp"

namespace lockstep::internal {
namespace {

ConnectedPair connect_between_hosts() {
  ConnectedPair pair = connect_pair();
  for (const Fd* socket : {&pair.client, &pair.server})
    EXPECT_TRUE(set_stream_options(*socket, {.congestion = {}, .between_hosts = true}).ok());
  return pair;
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
  const ConnectedPair pair = connect_between_hosts();
  SilenceWatch watch(Reactor::instance(), real_env());
  watch.add(pair.client.get());
  const std::size_t sent = fill(pair.client);
  std::this_thread::sleep_for(std::chrono::seconds(2 * kSilenceLimit));
  EXPECT_FALSE(watch.fell_silent(pair.client.get()));
  std::vector<std::byte> into(1 << 20);
  std::size_t came = 0;
  for (pollfd entry{pair.server.get(), POLLIN, 0}; came < sent && poll(&entry, 1, 30'000) == 1;) {
    const Transfer some = receive_some(pair.server.get(), into);
    ASSERT_EQ(some.error, 0);
    ASSERT_FALSE(some.ended);
    came += some.bytes;
  }
  EXPECT_EQ(came, sent);
  watch.remove(pair.client.get());
}

TEST(SilenceWatch, APeerThatDoesNotAnswerIsNoticed) {
  const ConnectedPair pair = connect_between_hosts();
  SilenceWatch watch(Reactor::instance(), real_env());
  watch.add(pair.client.get());
  cut_off(pair.server.get());
  ASSERT_GT(fill(pair.client), 0u);
  std::array<std::byte, 1> into{};
  pollfd entry{pair.client.get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 10 * kSilenceLimit * 1000), 1) << "nobody was told";
  EXPECT_TRUE(watch.fell_silent(pair.client.get()));
  EXPECT_TRUE(receive_some(pair.client.get(), into).ended);
  EXPECT_EQ(send_some(pair.client.get(), into).error, EPIPE);
  watch.remove(pair.client.get());
}

TEST(SilenceWatch, APeerThatFallsSilentWithAFullWindowIsNoticed) {
  const ConnectedPair pair = connect_between_hosts();
  SilenceWatch watch(Reactor::instance(), real_env());
  watch.add(pair.client.get());
  ASSERT_GT(fill(pair.client), 0u);
  cut_off(pair.server.get());
  pollfd entry{pair.client.get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 10 * kSilenceLimit * 1000), 1) << "nobody was told";
  EXPECT_TRUE(watch.fell_silent(pair.client.get()));
  watch.remove(pair.client.get());
}

tcp_info info_of(const Fd& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  EXPECT_EQ(getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size), 0);
  return info;
}

// The kernel asks once a second: a peer that was cut off for little more than one has missed two questions,
// and has yet to get the third when 3 s are over.
TEST(SilenceWatch, APeerThatAnswersTheThirdQuestionIsWell) {
  const ConnectedPair pair = connect_between_hosts();
  cut_off(pair.server.get());
  const auto unanswered = [&] { return int{info_of(pair.client).tcpi_probes}; };
  while (unanswered() < 2) poll(nullptr, 0, 1);
  const int nothing = 0;
  ASSERT_EQ(setsockopt(pair.server.get(), SOL_SOCKET, SO_DETACH_FILTER, &nothing, sizeof nothing), 0);
  for (int asked = unanswered(); asked != 0; asked = unanswered()) {
    if (asked > 2) GTEST_SKIP() << "too late for the third";
    ASSERT_FALSE(is_silent(pair.client.get())) << info_of(pair.client).tcpi_last_ack_recv << " ms";
    poll(nullptr, 0, 1);
  }
}

}  // namespace
}  // namespace lockstep::internal
