// Connections that end before their peer has read what was sent, while bytes of the peer's lie unread.
#include "transports/tcp/lingering_close.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "lib/net/stream_io.hpp"
#include "tests/transports/link_fixtures.hpp"

namespace lockstep::internal {
namespace {

using testing::connected_sockets;
using testing::SocketPair;

constexpr int kPatience = 20'000;  // ms

/// Sends until the systems of both sides hold all that they take. How much that was.
std::size_t fill(const Fd& socket) {
  const std::vector<std::byte> bytes(1 << 20);
  std::size_t total = 0;
  while (const std::size_t sent = send_some(socket.get(), bytes).bytes) total += sent;
  return total;
}

void say_something(const Fd& socket) {
  const std::byte word[10] = {};
  EXPECT_EQ(send_some(socket.get(), word).bytes, sizeof word);
}

/// Reads to the end of the stream.
Transfer read_all(const Fd& socket) {
  std::vector<std::byte> into(1 << 20);
  Transfer all;
  while (!all.ended && all.error == 0) {
    pollfd entry{socket.get(), POLLIN, 0};
    if (poll(&entry, 1, kPatience) != 1) {
      ADD_FAILURE() << "the stream does not end";
      return all;
    }
    const Transfer got = receive_some(socket.get(), into);
    all = {all.bytes + got.bytes, got.error, got.ended};
  }
  return all;
}

/// Whether the other side's socket is closed in the end: then what is said to it is refused.
bool is_refused(const Fd& socket) {
  const std::byte word{};
  for (int waited = 0; waited < kPatience; ++waited) {
    if (send_some(socket.get(), std::span(&word, 1)).error != 0) return true;
    static_cast<void>(poll(nullptr, 0, 1));
  }
  return false;
}

TEST(LingeringClose, DeliversAllThoughThePeerSaysWhatNobodyReads) {
  SocketPair pair = connected_sockets();
  say_something(pair.b);
  const std::size_t sent = fill(pair.a);
  close_lingering(Reactor::instance(), std::move(pair.a));
  say_something(pair.b);
  const Transfer got = read_all(pair.b);
  EXPECT_EQ(got.bytes, sent);
  EXPECT_TRUE(got.ended) << std::strerror(got.error);
  EXPECT_TRUE(is_refused(pair.b)) << "it is delivered: nothing is kept open";
}

TEST(LingeringClose, DeliversAllThoughThePeerReadsOnlyOnceItHasSaidMuch) {
  SocketPair pair = connected_sockets();
  const std::size_t sent = fill(pair.a);
  close_lingering(Reactor::instance(), std::move(pair.a));
  const std::vector<std::byte> bytes(1 << 20);
  for (std::size_t said = 0; said < std::size_t{24} << 20;) {  // More than the systems hold.
    pollfd entry{pair.b.get(), POLLOUT, 0};
    ASSERT_EQ(poll(&entry, 1, kPatience), 1);
    const Transfer some = send_some(pair.b.get(), bytes);
    ASSERT_EQ(some.error, 0);
    said += some.bytes;
  }
  EXPECT_EQ(read_all(pair.b).bytes, sent);
}

TEST(LingeringClose, ClosesAtOnceWhatIsDelivered) {
  SocketPair pair = connected_sockets();
  pair.b.reset();
  const int number = pair.a.get();
  close_lingering(Reactor::instance(), std::move(pair.a));
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

TEST(LingeringClose, EndsInTimeThoughThePeerReadsNothing) {
  SocketPair pair = connected_sockets();
  EXPECT_GT(fill(pair.a), 0u);
  close_lingering(Reactor::instance(), std::move(pair.a), 50'000'000);
  EXPECT_TRUE(is_refused(pair.b));
}

TEST(LingeringClose, AForkedChildKeepsNothingOpen) {
  SocketPair pair = connected_sockets();
  EXPECT_GT(fill(pair.a), 0u);
  const int number = pair.a.get();
  close_lingering(Reactor::instance(), std::move(pair.a));
  const pid_t child = fork();
  if (child == 0) _exit(fcntl(number, F_GETFD) == -1 ? 0 : 1);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lockstep::internal
