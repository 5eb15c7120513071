// What strangers, liars and the dead can do to the TCP store's server.
#include "lib/bootstrap/store_server.hpp"

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "lib/bootstrap/group_store.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "tests/bootstrap/store_server_fixtures.hpp"
#include "tests/net/connected_pair.hpp"
#include "tests/support/no_descriptors_left.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

TEST_F(StoreServerTest, ForeignProtocolIsHungUp) {
  const Fd socket = stranger();
  say(socket, "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(kHelloBytes, ' '));
  EXPECT_TRUE(is_hung_up(socket));
  EXPECT_TRUE(open(0)->set_one("x", "1").ok());
}

/// On a thread of the program's, which may have little more than the least stack that there is.
void* set_and_get(void* client) {
  auto store = open_tcp_store(*static_cast<const StoreClientOptions*>(client), kSoon, real_env());
  EXPECT_TRUE(store.ok() && (*store)->set_one("x", "1").ok());
  EXPECT_TRUE(store.ok() && (*store)->get_one("x", kSoon).ok());
  return nullptr;
}

TEST_F(StoreServerTest, AClientNeedsLittleStack) {
  if (testing::kSanitized) GTEST_SKIP() << "frames are larger there";
  constexpr std::size_t kLittle = 64 << 10;
  StoreClientOptions options = client(0);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kLittle), 0);
  pthread_t thread{};
  ASSERT_EQ(pthread_create(&thread, &attributes, set_and_get, &options), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
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

TEST_F(StoreServerTest, AStrangersRefusalIsNotKeptInsteadOfARanks) {
  for (const auto& [job, secret] : {std::pair("job", "guess"), std::pair("another job", "secret")}) {
    StoreClientOptions liar = client(2);
    liar.key = make_handshake_key(job, secret);
    EXPECT_FALSE(open_tcp_store(liar, kSoon, real_env()).ok());
  }
  const auto note = open(0)->get_one(group_prefix(1) + refusal_key(2), milliseconds(0));
  ASSERT_TRUE(note.ok()) << note.status().message();
  EXPECT_NE(note.value().find("was refused: wrong secret"), std::string::npos) << note.value();
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
  std::vector<std::string> keys;
  for (int rank = 0; rank < kMoreThanAreRemembered; ++rank)
    keys.push_back(group_prefix(1) + refusal_key(rank));
  const auto kept = open(0)->wait(keys, milliseconds(0)).value();
  EXPECT_EQ(std::count(kept.begin(), kept.end(), true), 64);
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

// It would wait for as long as a store may be late, and call it missing.
TEST_F(StoreServerTest, AClientThatLacksDescriptorsSaysSoAtOnce) {
  if (!testing::kDescriptorsCanRunOut) GTEST_SKIP() << "AddressSanitizer needs descriptors";
  const StoreClientOptions options = client(1);
  const testing::NoDescriptorsLeft none;
  const Status lack = connect_to_server(options, HandshakeService::store, kSoon, real_env()).status();
  EXPECT_EQ(lack.code(), ErrorCode::system) << lack.message();
  EXPECT_NE(lack.message().find("Too many open files"), std::string::npos) << lack.message();
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
  const Fd bound = bind_to_loopback();
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
