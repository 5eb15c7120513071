// Switchboards of ranks in one process: who connects to whom, who is turned away, and what the others hear of
// it.
#include "transports/tcp/switchboard.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/bootstrap/limits.hpp"
#include "lib/net/stream_io.hpp"
#include "tests/transports/switchboard_fixtures.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

using testing::address_key;
using testing::AdvancedEnv;
using testing::await;
using testing::expect_connected;
using testing::fresh_store;
using testing::hello_of;
using testing::make_boards;
using testing::meet;
using testing::race_for;
using testing::RaceResult;
using testing::Rank;
using testing::StaticSession;

void expect_hung_up(const Fd& socket) {
  pollfd entry{socket.get(), POLLIN, 0};
  ASSERT_EQ(poll(&entry, 1, 20'000), 1);
  std::byte byte{};
  EXPECT_TRUE(receive_some(socket.get(), std::span(&byte, 1)).ended);
}

template <class Condition>
bool comes_to_be(const Condition& condition) {
  for (int waited = 0; waited < 20'000; ++waited) {
    if (condition()) return true;
    static_cast<void>(poll(nullptr, 0, 1));
  }
  return false;
}

TEST(Switchboard, ConnectsEveryPairOncePerChannel) {
  auto ranks = meet({"s", "s", "s"});
  for (int a = 0; a < 3; ++a) {
    for (int b = 0; b < 3; ++b) {
      for (const std::uint64_t channel : {7u, 8u}) {
        if (a != b) ranks[static_cast<std::size_t>(a)].board->want(b, channel);
      }
    }
  }
  for (int a = 0; a < 3; ++a) {
    for (int b = a + 1; b < 3; ++b) {
      for (const std::uint64_t channel : {7u, 8u}) {
        auto low = await(*ranks[static_cast<std::size_t>(a)].board, b, channel);
        auto high = await(*ranks[static_cast<std::size_t>(b)].board, a, channel);
        expect_connected(low, high);
        EXPECT_FALSE(ranks[static_cast<std::size_t>(a)].board->take(b, channel).value().has_value())
            << "handed out twice";
      }
    }
  }
}

TEST(Switchboard, EitherRankAloneMayWantTheConnection) {
  auto ranks = meet({"s", "s"});
  for (const int wanting : {0, 1}) {
    const auto channel = static_cast<std::uint64_t>(wanting);
    ranks[static_cast<std::size_t>(wanting)].board->want(1 - wanting, channel);
    auto low = await(*ranks[0].board, 1, channel);
    auto high = await(*ranks[1].board, 0, channel);
    expect_connected(low, high);
  }
}

TEST(Switchboard, ForgetsAChannel) {
  auto ranks = meet({"s", "s"});
  const std::uint64_t before = ranks[1].board->changes();
  ranks[0].board->want(1, 1);
  auto low = await(*ranks[0].board, 1, 1);
  ASSERT_TRUE(low.ok() && *low);
  ASSERT_TRUE(comes_to_be([&] { return ranks[1].board->changes() != before; }));
  ranks[1].board->forget(1);  // It came, and nobody will take it: the other end hears of that.
  expect_hung_up(**low);
}

TEST(Switchboard, HangsUpOnWhoComesForAForgottenChannel) {
  auto ranks = meet({"s", "s"});
  for (const std::size_t forgetful : {1u, 0u}) {  // The higher is called; the lower calls who knocks.
    const int peer = static_cast<int>(1 - forgetful);
    ranks[forgetful].board->forget(forgetful);
    ranks[1 - forgetful].board->want(static_cast<int>(forgetful), forgetful);
    auto socket = await(*ranks[1 - forgetful].board, static_cast<int>(forgetful), forgetful);
    ASSERT_TRUE(socket.ok() && *socket);
    expect_hung_up(**socket);
    EXPECT_FALSE(ranks[forgetful].board->take(peer, forgetful).value()) << "nothing is kept";
  }
}

TEST(Switchboard, AForgottenChannelCanBeUsedAnew) {
  auto ranks = meet({"s", "s"});
  for (auto& rank : ranks) rank.board->forget(1);
  ranks[1].board->want(0, 1);
  ranks[0].board->want(1, 1);
  auto low = await(*ranks[0].board, 1, 1);
  auto high = await(*ranks[1].board, 0, 1);
  expect_connected(low, high);
}

TEST(Switchboard, RemembersSoManyForgottenChannels) {
  auto ranks = meet({"s", "s"});
  for (std::uint64_t channel = 0; channel <= kForgottenChannels; ++channel) ranks[1].board->forget(channel);
  for (const std::uint64_t channel : {std::uint64_t{0}, std::uint64_t{kForgottenChannels}}) {
    ranks[0].board->want(1, channel);
    auto socket = await(*ranks[0].board, 1, channel);
    ASSERT_TRUE(socket.ok() && *socket);
    if (channel > 0) {
      expect_hung_up(**socket);
    } else {
      auto other_end = await(*ranks[1].board, 0, channel);
      expect_connected(socket, other_end);
    }
  }
}

TEST(Switchboard, HangsUpOnASecondConnectionForAChannel) {
  auto ranks = meet({"s", "s"});
  const auto connect = [&](std::uint64_t channel) {
    HandshakeHello hello = hello_of(0, 1);
    hello.channel = channel;
    EXPECT_EQ(race_for(ranks[1].board->addresses(), "s", hello).outcome, AddressRace::Outcome::connected);
  };
  const auto arrives = [&](std::uint64_t channel) {
    auto socket = await(*ranks[1].board, 0, channel);
    return socket.ok() && socket->has_value();
  };
  connect(5);
  EXPECT_TRUE(arrives(5));
  connect(5);
  connect(6);
  EXPECT_TRUE(arrives(6));
  EXPECT_FALSE(ranks[1].board->take(0, 5).value().has_value());
}

TEST(Switchboard, SetsTheOptionsOfADataConnection) {
  auto ranks = meet({"s", "s"});
  ranks[0].board->want(1, 1);
  auto socket = await(*ranks[0].board, 1, 1);
  ASSERT_TRUE(socket.ok() && *socket);
  char name[16] = {};
  socklen_t size = sizeof name;
  ASSERT_EQ(getsockopt((*socket)->get(), IPPROTO_TCP, TCP_CONGESTION, name, &size), 0);
  EXPECT_STREQ(name, "reno");
}

TEST(Switchboard, ShowsStrangersTheDoor) {
  auto ranks = meet({"s", "s"});
  std::vector<Fd> idle;  // Strangers that say nothing must not keep the others out.
  for (int i = 0; i < 40; ++i) {
    auto stranger = start_connect(ranks[1].board->addresses().front());
    ASSERT_TRUE(stranger.ok());
    idle.push_back(std::move(*stranger));
  }
  for (int i = 0; i < 10; ++i) {
    auto stranger = tcp_connect(ranks[1].board->addresses().front(), std::chrono::seconds(10), real_env());
    ASSERT_TRUE(stranger.ok());
    const std::vector<std::byte> garbage(1000, std::byte{0x41});
    send_some(stranger->get(), garbage);
    pollfd entry{stranger->get(), POLLIN, 0};
    ASSERT_EQ(poll(&entry, 1, 20'000), 1);
    std::byte answer{};
    const Transfer got = receive_some(stranger->get(), std::span(&answer, 1));
    EXPECT_TRUE(got.ended || got.error == ECONNRESET) << "a stranger got an answer";
  }
  ranks[0].board->want(1, 1);
  auto low = await(*ranks[0].board, 1, 1);
  auto high = await(*ranks[1].board, 0, 1);
  expect_connected(low, high);
}

TEST(Switchboard, RefusesAWrongSecret) {
  auto ranks = meet({"right", "wrong"});
  ranks[0].board->want(1, 1);
  auto refused = await(*ranks[0].board, 1, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), ErrorCode::unauthorized);
  EXPECT_EQ(refused.status().culprit(), 1);
  EXPECT_NE(refused.status().message().find("rank 1 (node1, pid 1001)"), std::string::npos)
      << refused.status().message();
  auto nothing = ranks[1].board->take(0, 1);
  EXPECT_TRUE(nothing.ok() && !*nothing);
}

TEST(Switchboard, NamesAPeerThatDoesNotListenAnyMore) {
  auto ranks = meet({"s", "s"});
  for (const std::size_t gone : {1u, 0u}) {
    ranks[gone].board.reset();
    Rank& left = ranks[1 - gone];
    left.board->want(static_cast<int>(gone), 1);
    auto lost = await(*left.board, static_cast<int>(gone), 1);
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.status().code(), ErrorCode::peer_lost);
    EXPECT_EQ(lost.status().culprit(), static_cast<int>(gone));
    EXPECT_NE(lost.status().message().find(") cannot be reached: cannot connect to 127"), std::string::npos)
        << lost.status().message();
    ranks = meet({"s", "s"});
  }
}

TEST(Switchboard, EndsTheWaitForALostRank) {
  const std::string store = fresh_store();
  auto silent = tcp_listen({"127.0.0.1", 0});  // Rank 0's: accepts in the kernel, and never says a word.
  ASSERT_TRUE(silent.ok());
  std::vector<Rank> ranks(2);
  for (std::size_t r = 0; r < 2; ++r)
    ranks[r].session = std::make_unique<StaticSession>(static_cast<int>(r) + 1, 3, store);
  ASSERT_TRUE(ranks[0].session->store().set_one(address_key(0), local_address(*silent).text() + " 1").ok());
  make_boards(ranks);
  ranks[1].board->want(0, 1);
  ranks[1].session->lose(0, "killed by SIGKILL");
  for (const std::uint64_t channel : {1u, 2u}) {
    ranks[1].board->want(0, channel);
    auto lost = await(*ranks[1].board, 0, channel);
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.status().message(), "rank 0 (node0, pid 1000) is gone: killed by SIGKILL");
    EXPECT_EQ(lost.status().culprit(), 0);
  }
  ranks[1].board->want(1, 1);
  auto other = await(*ranks[1].board, 1, 1);
  EXPECT_TRUE(other.ok() && *other) << "one loss must not end the others' connections";
}

TEST(Switchboard, BlamesNobodyForItsOwnLackOfDescriptors) {
  auto ranks = meet({"s", "s"});
  ranks[0].board->want(1, 1);
  auto before = await(*ranks[0].board, 1, 1);
  ASSERT_TRUE(before.ok() && *before);
  rlimit usual{};
  getrlimit(RLIMIT_NOFILE, &usual);
  const int lowest_free = dup(0);
  close(lowest_free);
  const rlimit none{static_cast<rlim_t>(lowest_free), usual.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  ranks[0].board->want(1, 2);
  auto taken = ranks[0].board->take(1, 2);
  const bool ended = comes_to_be([&] {
    taken = ranks[0].board->take(1, 2);
    return !taken.ok();
  });
  setrlimit(RLIMIT_NOFILE, &usual);
  ASSERT_TRUE(ended);
  EXPECT_EQ(taken.status().code(), ErrorCode::system);
  EXPECT_EQ(taken.status().culprit(), -1);
  EXPECT_NE(taken.status().message().find("Too many open files: raise the limit of open files (`ulimit -n`)"),
            std::string::npos)
      << taken.status().message();
}

/// How often rank 0 calls a peer that hangs up, each time after `patience`.
int calls_of_a_peer_that_hangs_up_after(std::chrono::milliseconds patience) {
  auto listener = tcp_listen({"127.0.0.1", 0});
  StaticSession session(0, 2, fresh_store());
  EXPECT_TRUE(session.store().set_one(address_key(1), local_address(*listener).text() + " 1").ok());
  AdvancedEnv env;
  auto board = Switchboard::make(session, env, std::chrono::seconds(60));
  EXPECT_TRUE(board.ok()) << board.status().message();
  (*board)->want(1, 1);
  int calls = 0;
  for (auto result = (*board)->take(1, 1); result.ok(); result = (*board)->take(1, 1)) {
    pollfd entry{listener->get(), POLLIN, 0};
    if (poll(&entry, 1, 10) != 1) continue;
    ++calls;
    env.advance(patience);
    EXPECT_TRUE(accept_connection(*listener).ok());  // And closes it.
  }
  const Status why = (*board)->take(1, 1).status();
  EXPECT_EQ(why.code(), ErrorCode::peer_lost);
  EXPECT_NE(why.message().find("broke the handshake off"), std::string::npos) << why.message();
  return calls;
}

TEST(Switchboard, CallsAgainWhereItsHelloWasLate) {
  EXPECT_EQ(calls_of_a_peer_that_hangs_up_after({}), kConnectAttempts);
  EXPECT_EQ(calls_of_a_peer_that_hangs_up_after(kHelloPatience), kLateHelloPatience / kHelloPatience);
}

/// A peer that is stopped, say: what counts is the deadline of who waits for it.
TEST(Switchboard, CallsALateOneAsLongAsSomebodyWaits) {
  auto silent = tcp_listen({"127.0.0.1", 0});
  std::vector<Result<std::optional<Fd>>> callers;  // To whom nobody ever says a word.
  for (const int rank : {0, 1}) {                  // Who calls, and who asks to be called.
    StaticSession session(rank, 2, fresh_store());
    ASSERT_TRUE(session.store().set_one(address_key(1 - rank), local_address(*silent).text() + " 1").ok());
    AdvancedEnv env;
    auto board = Switchboard::make(session, env, std::chrono::seconds(60));
    ASSERT_TRUE(board.ok()) << board.status().message();
    env.advance(std::chrono::milliseconds(20) - kConnectDeadline);  // That is over so soon.
    (*board)->want(1 - rank, 1);
    for (int calls = 0; calls < 3 * kConnectAttempts; ++calls) {
      pollfd entry{silent->get(), POLLIN, 0};
      ASSERT_EQ(poll(&entry, 1, 20'000), 1) << (*board)->take(1 - rank, 1).status().message();
      callers.push_back(accept_connection(*silent));
      ASSERT_TRUE(callers.back().ok());
      const auto still = (*board)->take(1 - rank, 1);
      ASSERT_TRUE(still.ok()) << still.status().message();
    }
    (*board)->forget(1);
  }
}

TEST(Switchboard, NamesAPeerByItsNumberInTheGroupThatAsked) {
  auto ranks = meet({"s", "s"});
  ranks[1].board.reset();
  ranks[0].board->want(1, 1);
  ASSERT_FALSE(await(*ranks[0].board, 1, 1).ok());
  const Status lost = ranks[0].board->take(1, 1, 7).status();
  EXPECT_EQ(lost.culprit(), 7);
  EXPECT_EQ(lost.message().rfind("rank 7 (node1, pid 1001) cannot be reached: cannot connect to 127", 0), 0u)
      << lost.message();
}

}  // namespace
}  // namespace lockstep::internal
