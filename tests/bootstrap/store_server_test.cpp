// What strangers, liars and the dead can do to the TCP store's server.
#include "lib/bootstrap/store_server.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "lib/base/env.hpp"
#include "lib/bootstrap/group_store.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "lib/bootstrap/wire.hpp"
#include "tests/bootstrap/store_fixtures.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

class StoreServerTest : public testing::Test {
 protected:
  StoreServerTest() : server_(start({})) {}

  std::unique_ptr<StoreServer> start(milliseconds grace) {
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
    for (int look = 0; look < 2000 && server_->connections(1) != count; ++look) sleep_for(milliseconds(10));
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
std::string read_bytes(const Fd& socket, std::size_t bytes) {
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

bool is_hung_up(const Fd& socket) {
  pollfd entry{socket.get(), POLLIN, 0};
  char byte = 0;
  return poll(&entry, 1, static_cast<int>(kSoon.count())) == 1 && recv(socket.get(), &byte, 1, 0) <= 0;
}

void say(const Fd& socket, std::string_view text) {
  ASSERT_EQ(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

std::pair<Fd, std::string> StoreServerTest::owing_watch(int rank) {
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

StoreRequest next_notice(const Fd& socket) {
  StoreRequest none;
  none.loss = {-1, "the server hung up"};
  const std::string frame = read_bytes(socket, kFrameOverhead);
  if (frame.size() < kFrameOverhead) return none;
  std::uint32_t size = 0;
  WireReader(as_bytes(frame)).integer(size);
  const std::string body = read_bytes(socket, size);
  return decode_request(as_bytes(body)).value();
}

Loss next_loss(const Fd& socket) { return next_notice(socket).loss; }

void leave(const Fd& socket) {
  StoreRequest request;
  request.verb = StoreVerb::leave;
  say(socket, encode(request));
}

TEST_F(StoreServerTest, ForeignProtocolIsHungUp) {
  const Fd socket = stranger();
  say(socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(kHelloBytes, ' '));
  EXPECT_TRUE(is_hung_up(socket));
  EXPECT_TRUE(open(0)->set_one("x", "1").ok());
}

TEST_F(StoreServerTest, SilentStrangersAreDroppedAndKeepNobodyOut) {
  std::vector<Fd> strangers;
  for (std::size_t i = 0; i < kMaxHalfOpen + 8; ++i) strangers.push_back(stranger());
  EXPECT_TRUE(open(0)->set_one("x", "1").ok());  // Waits at most kHandshakeDeadline.
  EXPECT_TRUE(is_hung_up(strangers.front()));
}

TEST_F(StoreServerTest, WrongSecretIsRefusedAndNoted) {
  StoreClientOptions liar = client(2);
  liar.key = make_handshake_key("job", "guess");
  const auto store = open_tcp_store(liar, kSoon, real_env());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), ErrorCode::unauthorized);
  EXPECT_EQ(store.status().message(),
            "rank 2 was not accepted by the store at " + server_->address().text() +
                ": wrong secret; LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE must hold the "
                "same secret on all ranks");
  const auto note = open(0)->get_one(group_prefix(1) + refusal_key(2), kSoon);
  ASSERT_TRUE(note.ok());
  EXPECT_NE(note.value().find("calls itself rank 2 was refused: wrong secret"), std::string::npos);
}

/// Each hello claims another rank.
TEST_F(StoreServerTest, StrangersHideNoRefusalOfARank) {
  constexpr int kMoreThanAreRemembered = 80;
  const auto knock = [&](int rank, const HandshakeKey& key) {
    StoreClientOptions liar = client(rank);
    liar.key = key;
    liar.world = kMoreThanAreRemembered + 1;
    EXPECT_FALSE(open_tcp_store(liar, kSoon, real_env()).ok());
  };
  for (int rank = 0; rank < kMoreThanAreRemembered; ++rank)
    knock(rank, make_handshake_key("another job", "secret"));
  knock(kMoreThanAreRemembered, make_handshake_key("job", "guess"));
  knock(kMoreThanAreRemembered, make_handshake_key("another job", "secret"));
  const auto note = open(0)->get_one(group_prefix(1) + refusal_key(kMoreThanAreRemembered), milliseconds(0));
  ASSERT_TRUE(note.ok()) << note.status().message();
  EXPECT_NE(note.value().find("was refused: wrong secret"), std::string::npos) << note.value();
}

TEST_F(StoreServerTest, ARankThatIsStartedAgainAndAgainHidesNoOther) {
  const auto knock = [&](int rank) {
    StoreClientOptions liar = client(rank);
    liar.key = make_handshake_key("job", "guess");
    EXPECT_FALSE(open_tcp_store(liar, kSoon, real_env()).ok());
  };
  for (int start = 0; start < 80; ++start) knock(1);
  knock(2);
  EXPECT_TRUE(open(0)->get_one(group_prefix(1) + refusal_key(2), milliseconds(0)).ok());
}

TEST_F(StoreServerTest, RefusalsAreForgottenWithTheirGroup) {
  constexpr int kAsManyAsAreRemembered = 64;
  const auto knock = [&](int rank, std::uint64_t group) {
    StoreClientOptions liar = client(rank, group);
    liar.key = make_handshake_key("job", "guess");
    liar.world = kAsManyAsAreRemembered;
    EXPECT_FALSE(open_tcp_store(liar, kSoon, real_env()).ok());
  };
  for (int rank = 0; rank < kAsManyAsAreRemembered; ++rank) knock(rank, 1);
  auto member = open(0);
  const auto later = open_tcp_store(client(0, 2), kSoon, real_env());
  ASSERT_TRUE(later.ok());
  member.reset();
  await_connections(0);
  knock(3, 2);
  EXPECT_TRUE(later.value()->get_one(group_prefix(2) + refusal_key(3), milliseconds(0)).ok());
}

TEST_F(StoreServerTest, NoRefusalIsKeptOfARankThatNoJobHas) {
  const auto store = open(0);
  for (const int rank : {-1, kMaxWorld}) {
    EXPECT_FALSE(open_tcp_store(client(rank), kSoon, real_env()).ok());
    const std::vector<std::string> key{group_prefix(1) + refusal_key(rank)};
    EXPECT_FALSE(store->wait(key, milliseconds(0)).value().front()) << rank;
  }
}

TEST_F(StoreServerTest, TakenPortIsNamed) {
  StoreServerOptions options;
  options.key = key_;
  options.at = server_->address();
  const auto second = StoreServer::start(std::move(options));
  ASSERT_FALSE(second.ok());
  EXPECT_NE(
      second.status().message().find("the port is already taken by process " + std::to_string(getpid())),
      std::string::npos);
}

TEST_F(StoreServerTest, AuthenticatedNonsenseIsHungUp) {
  for (const std::string& nonsense : {std::string("\x01\0\0\0\x63", 5), std::string("\xff\xff\xff\xff", 4)}) {
    auto socket = connect_to_server(client(1), HandshakeService::store, kSoon, real_env());
    ASSERT_TRUE(socket.ok());
    say(*socket, nonsense);
    EXPECT_TRUE(is_hung_up(*socket));
  }
}

/// A get that nobody answers soon.
StoreRequest waiting_get() {
  StoreRequest request;
  request.verb = StoreVerb::get;
  request.keys = {"x"};
  request.timeout_ms = 600'000;
  return request;
}

TEST_F(StoreServerTest, WhoSpeaksWhileItWaitsIsHungUp) {
  const auto socket = connect_to_server(client(1), HandshakeService::store, kSoon, real_env());
  ASSERT_TRUE(socket.ok());
  say(socket.value(), encode(waiting_get()));
  say(socket.value(), encode(waiting_get()));
  EXPECT_TRUE(is_hung_up(socket.value()));
}

TEST_F(StoreServerTest, WhoEndsWhileItWaitsIsForgotten) {
  {
    const auto socket = connect_to_server(client(1), HandshakeService::store, kSoon, real_env());
    ASSERT_TRUE(socket.ok());
    say(socket.value(), encode(waiting_get()));
  }
  await_connections(0);
  EXPECT_TRUE(open(0)->set_one("x", "1").ok());
}

TEST_F(StoreServerTest, RequestsBeyondTheLimitsAreRefusedHere) {
  const auto store = open(0);
  const std::vector<Store::Entry> entries(5, {"key", std::string(kMaxValueBytes, 'v')});
  EXPECT_EQ(store->set(entries).code(), ErrorCode::invalid_argument);
  ASSERT_TRUE(store->set({entries.data(), 1}).ok());
  const std::vector<std::string> keys(kMaxTotalBytes / kMaxValueBytes + 1, "key");
  EXPECT_EQ(store->get(keys, kSoon).status().message(),
            "one request to the store asks for more than 67108864 bytes");
  EXPECT_TRUE(store->set_one("x", "1").ok());
}

TEST_F(StoreServerTest, EndOfAWatchIsTold) {
  const Fd survivor = watch(0);
  watch(3);  // Opened and closed: rank 3 is gone.
  const Loss loss = next_loss(survivor);
  EXPECT_EQ(loss.rank, 3);
  EXPECT_EQ(loss.evidence, "its connection was closed");
  const Fd late = watch(1);  // Is told at once.
  EXPECT_EQ(next_loss(late).rank, 3);
}

TEST_F(StoreServerTest, LeavingIsNoLoss) {
  const Fd survivor = watch(0);
  {
    const Fd leaver = watch(2);
    leave(leaver);
  }
  watch(3);
  EXPECT_EQ(next_loss(survivor).rank, 3);
}

TEST_F(StoreServerTest, ARankOfThisProcessLeavesOneGroup) {
  const Fd first = watch(0, 1), second = watch(0, 2);
  Fd left_first = watch(1, 1), left_second = watch(1, 2);
  StoreServer::leave_here(server_->address(), 2, 1);
  left_first.reset();
  EXPECT_EQ(next_loss(first).rank, 1);
  left_second.reset();
  ASSERT_TRUE(open(3)->set_one("x", "1").ok());  // Its handshake took the reactor round several times.
  server_->report_loss({3, "killed by SIGKILL"});
  EXPECT_EQ(next_loss(second).rank, 3);
}

TEST_F(StoreServerTest, AServerThatEndsSaysGoodbye) {
  const Fd first = watch(0, 1), second = watch(0, 2);
  server_.reset();
  for (const Fd* socket : {&first, &second}) EXPECT_EQ(next_notice(*socket).verb, StoreVerb::leave);
}

TEST_F(StoreServerTest, SecondWatchOfARankIsRefused) {
  const Fd first = watch(1);
  const auto second = connect_to_server(client(1), HandshakeService::watch, kSoon, real_env());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.status().message().find("rank 1 is already taken by another process"), std::string::npos);
}

TEST_F(StoreServerTest, OfTwoThatProveARankTheFirstHasIt) {
  const auto [first, proof] = owing_watch(1);
  const auto [second, same_proof] = owing_watch(1);
  say(first, proof);
  await_connections(1);
  say(second, same_proof);
  EXPECT_TRUE(is_hung_up(second));
  EXPECT_EQ(server_->connections(1), 1u);
}

TEST_F(StoreServerTest, ReportsOfRanksAreSpreadAndTheFirstCounts) {
  const Fd a = watch(0), b = watch(1);
  StoreRequest report;
  report.verb = StoreVerb::lost;
  report.loss = {2, "its link was reset"};
  say(a, encode(report));
  EXPECT_EQ(next_loss(b).evidence, "its link was reset");
  server_->report_loss({2, "killed by SIGKILL"});
  server_->report_loss({3, "exited with code 7"});
  const Loss next = next_loss(b);
  EXPECT_EQ(next.rank, 3);
  EXPECT_EQ(next.evidence, "exited with code 7");
}

TEST_F(StoreServerTest, LaunchersEvidenceBeatsTheConnectionsEnd) {
  server_ = start(kSoon);
  const Fd survivor = watch(0);
  watch(3);
  server_->report_loss({3, "killed by SIGKILL"});
  EXPECT_EQ(next_loss(survivor).evidence, "killed by SIGKILL");
}

// It may be the death of another, of which the launcher will know, that ends it.
TEST_F(StoreServerTest, LaunchersEvidenceBeatsWhatARankSaysOfItself) {
  server_ = start(kSoon);
  const Fd survivor = watch(0), fails = watch(3);
  StoreRequest report;
  report.verb = StoreVerb::lost;
  report.loss = {3, "it ended after a failure"};
  say(fails, encode(report));
  ASSERT_TRUE(open(1)->set_one("x", "1").ok());  // Its handshake took the reactor round several times.
  server_->report_loss({3, "killed by SIGKILL"});
  EXPECT_EQ(next_loss(survivor).evidence, "killed by SIGKILL");
}

TEST_F(StoreServerTest, AGoodEndIsALossToThoseThatTheRankHasNotLeft) {
  server_ = start(kSoon);
  const Fd left = watch(0), not_left = watch(0, 2);
  const Fd first = watch(1), second = watch(1, 2);
  leave(first);
  ASSERT_TRUE(open(3)->set_one("x", "1").ok());  // Its handshake took the reactor round several times.
  const Fd never_joined = watch(0, 3);
  server_->report_end({1, "exited with code 0"});
  EXPECT_EQ(next_loss(not_left).evidence, "exited with code 0");
  EXPECT_EQ(next_loss(never_joined).evidence, "exited with code 0");
  EXPECT_EQ(next_loss(watch(0, 4)).evidence, "exited with code 0");
  server_->report_loss({2, "killed by SIGKILL"});
  EXPECT_EQ(next_loss(left).rank, 2);
}

TEST_F(StoreServerTest, AGroupHearsOfItsOwnLossesAndOfWhatTheLauncherKnows) {
  const Fd first = watch(0, 1), second = watch(0, 2);
  watch(1, 1);  // Another process may be rank 1 of group 2.
  EXPECT_EQ(next_loss(first).rank, 1);
  const Fd one = watch(1, 2);
  server_->report_loss({3, "killed by SIGKILL"});
  EXPECT_EQ(next_loss(second).rank, 3);
  EXPECT_EQ(next_loss(watch(0, 3)).rank, 3);
}

TEST_F(StoreServerTest, AnEarlierGroupIsForgottenWhenItHasGone) {
  const auto looker = open_tcp_store(client(3, 7), kSoon, real_env());
  ASSERT_TRUE(looker.ok());
  const std::vector<std::string> key{group_prefix(1) + "x"};
  auto member = open(0);
  ASSERT_TRUE(member->set_one(key.front(), "1").ok());
  EXPECT_TRUE(looker.value()->get(key, kSoon).ok());
  member.reset();
  for (int look = 0; look < 2000 && looker.value()->wait(key, milliseconds(0)).value().front(); ++look)
    sleep_for(milliseconds(10));
  EXPECT_FALSE(looker.value()->wait(key, milliseconds(0)).value().front());
}

TEST_F(StoreServerTest, UnreachableServerIsNamed) {
  // Bound but not listening: nobody else can take the port, and it refuses.
  const Fd bound(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(bound.get(), reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
  StoreClientOptions options = client(1);
  options.server = local_address(bound);
  const auto store = open_tcp_store(options, milliseconds(50), real_env());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), ErrorCode::timeout);
  EXPECT_EQ(store.status().message(), "the store at " + options.server.text() +
                                          " could not be reached: cannot connect to " +
                                          options.server.text() + ": Connection refused");
}

TEST_F(StoreServerTest, ClientsOfADeadServerAreTold) {
  const auto store = open(0);
  server_.reset();
  const Status status = store->set_one("x", "1");
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("the store at 127.0.0.1:"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::internal
