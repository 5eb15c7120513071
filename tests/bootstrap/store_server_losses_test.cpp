// Whom the TCP store's server tells of whose loss, and on whose word.
#include "lib/bootstrap/group_store.hpp"
#include "tests/bootstrap/store_server_fixtures.hpp"

namespace lockstep::internal {
namespace {

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

// All that is told is kept, for those who come later.
TEST_F(StoreServerTest, WhoReportsARankThatThereIsNotIsLostItself) {
  std::uint64_t group = 0;
  for (const int none : {-1, 4}) {
    const Fd survivor = watch(0, ++group), reporter = watch(1, group);
    StoreRequest report;
    report.verb = StoreVerb::lost;
    report.loss = {none, "its link was reset"};
    say(reporter, encode(report));
    EXPECT_EQ(next_loss(survivor).rank, 1);
  }
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

// The launcher's rank 1 may be another process than the group's.
TEST_F(StoreServerTest, AGroupWithNumbersOfItsOwnHearsNothingOfTheLaunchers) {
  server_->report_end({1, "exited with code 0"});
  ASSERT_TRUE(open(0)->set_one(group_prefix(2) + kOwnNumbersKey, "1").ok());
  const Fd own = watch(0, 2);
  const Fd one = watch(1, 2), other = watch(3, 2);
  server_->report_loss({2, "killed by SIGKILL"});
  StoreRequest report;
  report.verb = StoreVerb::lost;
  report.loss = {1, "its link was reset"};
  say(other, encode(report));
  EXPECT_EQ(next_loss(own).evidence, "its link was reset");
}

// Ranks come first, and say a moment later whose numbers they have.
TEST_F(StoreServerTest, TheLaunchersWordWaitsUntilItIsKnownWhoseNumbersAGroupHas) {
  auto comer = open_tcp_store(client(0, 2), kSoon, real_env());
  ASSERT_TRUE(comer.ok()) << comer.status().message();
  server_->report_end({1, "exited with code 0"});
  server_->report_loss({2, "killed by SIGKILL"});
  ASSERT_TRUE(comer.value()->set_one(group_prefix(2) + kOwnNumbersKey, "1").ok());
  const Fd own = watch(0, 2), other = watch(3, 2);
  StoreRequest report;
  report.verb = StoreVerb::lost;
  report.loss = {2, "its link was reset"};
  say(other, encode(report));
  EXPECT_EQ(next_loss(own).evidence, "its link was reset");
}

}  // namespace
}  // namespace lockstep::internal
