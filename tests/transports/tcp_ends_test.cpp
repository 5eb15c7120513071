// How a TCP connection ends, and what its link says then.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <vector>

#include "lib/net/reactor.hpp"
#include "lib/net/silence_watch.hpp"
#include "tests/transports/link_fixtures.hpp"
#include "transports/tcp/tcp_link.hpp"

namespace lockstep::internal {
namespace {

using testing::connected_sockets;
using testing::Incoming;
using testing::message;
using testing::Outgoing;
using testing::pull;
using testing::push;
using testing::SocketPair;

TEST(TcpLink, ReadsTheReasonAfterItsOwnSendsFailed) {
  SocketPair pair = connected_sockets();
  TcpLink link(std::move(pair.b), 0);
  Outgoing reason = message(100, 1);
  {
    TcpLink peer(std::move(pair.a), 1);
    ASSERT_TRUE(push(peer, reason).ok() && reason.done);
  }
  Result<bool> sent = true;
  while (sent.ok()) {
    Outgoing out = message(1000, 2);
    sent = push(link, out);
  }
  EXPECT_EQ(sent.status().code(), ErrorCode::peer_lost);
  Incoming in;
  auto got = pull(link, in);
  ASSERT_TRUE(got.ok()) << got.status().message();
  EXPECT_TRUE(in.payload == reason.payload);
}

/// A reactor that keeps what it is to call later.
class Timers final : public Reactor {
 public:
  Handle watch(int, std::uint32_t, std::function<void(std::uint32_t)>) override { return 0; }
  void modify(Handle, std::uint32_t) override {}
  Handle at(Nanos, std::function<void()> fire) override {
    kept.push_back(std::move(fire));
    return kept.size();
  }
  void remove(Handle) override {}
  void post(std::function<void()> task) override { task(); }
  void run_there(const std::function<void()>& task) override { task(); }
  void add(Progressor*) override {}
  void remove(Progressor*) override {}
  void notify() override {}

  std::vector<std::function<void()>> kept;
};

// What was watched on would be the descriptor that has its number next.
TEST(TcpLink, IsWatchedForSilenceAsLongAsItHasItsSocket) {
  Timers timers;
  SilenceWatch watch(timers, real_env());
  const auto looks_again = [&] {
    const std::size_t before = timers.kept.size();
    const auto look = timers.kept.back();
    look();
    return timers.kept.size() > before;
  };
  SocketPair pair = connected_sockets();
  std::optional<TcpLink> link;
  link.emplace(std::move(pair.a), 1, std::make_shared<Bounce>(), &watch);
  ASSERT_EQ(timers.kept.size(), 1u);
  EXPECT_TRUE(looks_again());
  link.reset();
  EXPECT_FALSE(looks_again());
}

TEST(TcpLink, NamesNoAddressWhereTheConnectionWasResetBefore) {
  SocketPair pair = connected_sockets();
  const linger at_once{1, 0};
  ASSERT_EQ(setsockopt(pair.a.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  pair.a.reset();
  pollfd reset{pair.b.get(), POLLIN, 0};
  ASSERT_EQ(poll(&reset, 1, 10'000), 1);
  TcpLink link(std::move(pair.b), 0);
  const Status status = link.peek().status();
  EXPECT_EQ(status.code(), ErrorCode::peer_lost);
  EXPECT_EQ(status.message().find("rank 0 is gone: "), 0u) << status.message();
}

TEST(TcpLink, NoticesAKilledProcess) {
  SocketPair pair = connected_sockets();
  const int theirs = dup(pair.a.get());  // The child keeps this one: it is not in an Fd.
  const pid_t child = fork();
  if (child == 0) {
    Fd socket(theirs);
    TcpLink link(std::move(socket), 1);
    Outgoing hello = message(10, 1);
    while (!hello.done) {
      if (!push(link, hello).ok()) _exit(1);
    }
    pause();
    _exit(0);
  }
  close(theirs);
  pair.a.reset();
  TcpLink link(std::move(pair.b), 0);
  Incoming in;
  while (!in.done) ASSERT_TRUE(pull(link, in).ok());
  kill(child, SIGKILL);
  pollfd entry = link.poll_entry();
  ASSERT_EQ(poll(&entry, 1, 10'000), 1);
  auto head = link.peek();
  ASSERT_FALSE(head.ok());
  EXPECT_EQ(head.status().code(), ErrorCode::peer_lost);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

}  // namespace
}  // namespace lockstep::internal
