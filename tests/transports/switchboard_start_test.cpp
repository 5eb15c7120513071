// How ranks come to their switchboards: who is missing, what they must agree on, and who calls too early.
#include <gtest/gtest.h>
#include <poll.h>

#include <memory>
#include <thread>

#include "lib/base/config.hpp"
#include "tests/support/scoped_variable.hpp"
#include "tests/transports/switchboard_fixtures.hpp"

namespace lockstep::internal {
namespace {

using testing::address_key;
using testing::fresh_store;
using testing::hello_of;
using testing::race_for;
using testing::RaceResult;
using testing::ScopedVariable;
using testing::StaticSession;

// One rank alone, whose peer 1 published `theirs` (nothing when empty).
Status meet_alone(const std::string& theirs, int sockets_per_link = 1,
                  std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  StaticSession session(0, 2, fresh_store());
  if (!theirs.empty()) LOCKSTEP_RETURN_IF_ERROR(session.store().set_one(address_key(1), theirs));
  return Switchboard::make(session, real_env(), timeout, sockets_per_link).status();
}

TEST(Switchboard, NamesARankThatNeverPublished) {
  const Status status = meet_alone("", 1, std::chrono::milliseconds(300));
  EXPECT_EQ(status.code(), ErrorCode::timeout);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_EQ(status.message(),
            "while waiting for the TCP addresses of all ranks: rank 1 (node1, pid 1001) did not tell its own "
            "in time: see what keeps it");
}

TEST(Switchboard, DoesNotWaitForARankThatDied) {
  StaticSession session(0, 2, fresh_store());
  std::thread killer([&] {
    while (!session.store().wait(std::vector{address_key(0)}, std::chrono::milliseconds(100)).value()[0]) {
    }
    session.lose(1, "exited with code 3");
  });
  const Status status = Switchboard::make(session, real_env(), std::chrono::seconds(60)).status();
  killer.join();
  EXPECT_EQ(status.code(), ErrorCode::peer_lost);
  EXPECT_EQ(status.message(), "rank 1 (node1, pid 1001) is gone: exited with code 3");
}

TEST(Switchboard, TheVariableGoesBeforeTheMeasuredNumberOfSockets) {
  const Status measured = meet_alone("127.0.0.1:1 3", 99);
  EXPECT_EQ(measured.message(), "tcp_sockets of the tuning file is 99, but a link has 1 to 16 sockets");
  const ScopedVariable set("LOCKSTEP_TCP_SOCKETS", "2");
  EXPECT_EQ(meet_alone("127.0.0.1:1 3", 99).message(),
            "LOCKSTEP_TCP_SOCKETS is 2 on rank 0 and 3 on rank 1: set it equally on all ranks");
}

TEST(Switchboard, RefusesRanksThatDisagreeOnTheNumberOfSockets) {
  const Status status = meet_alone("127.0.0.1:1 3");
  EXPECT_EQ(status.code(), ErrorCode::configuration);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_EQ(status.message(),
            "LOCKSTEP_TCP_SOCKETS is 1 on rank 0 and 3 on rank 1: set it equally on all ranks");
}

TEST(Switchboard, RefusesANumberOfSocketsOutOfRange) {
  for (const char* number : {"0", "17"}) {
    const ScopedVariable sockets("LOCKSTEP_TCP_SOCKETS", number);
    EXPECT_EQ(check_environment().message(), std::string("LOCKSTEP_TCP_SOCKETS=") + number +
                                                 " is not allowed: write a whole number, from 1 to 16");
  }
}

TEST(Switchboard, RefusesAddressesThatAreNone) {
  for (const char* text : {"nonsense", "127.0.0.1:1", "127.0.0.1:1 0", "127.0.0.1:1 99", "127.0.0.1:1 2x",
                           ":1 1", "127.0.0.1:1  1", "a:1 a:1 a:1 a:1 a:1 a:1 a:1 a:1 a:1 1", "1",
                           "127.0.0.1:1 1/2", "127.0.0.1:1 1/0", "127.0.0.1:1 1/", "127.0.0.1:1 1/1x"}) {
    const Status status = meet_alone(text);
    EXPECT_EQ(status.code(), ErrorCode::internal) << text;
    EXPECT_NE(status.message().find("is not a published address"), std::string::npos) << status.message();
  }
}

TEST(Switchboard, CallsWhoKnockedBeforeItKnewWhereTheyAre) {
  StaticSession session(0, 2, fresh_store());
  auto listener = tcp_listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener.ok());
  std::unique_ptr<Switchboard> board;
  std::thread making([&] {
    auto made = Switchboard::make(session, real_env(), std::chrono::seconds(60));
    ASSERT_TRUE(made.ok()) << made.status().message();
    board = std::move(*made);
  });
  const auto published = session.store().get_one(address_key(0), std::chrono::seconds(20));
  EXPECT_TRUE(published.ok());
  HandshakeHello knock = hello_of(1, 0);
  knock.service = HandshakeService::knock;
  const RaceResult knocked =
      race_for(PublishedAddress::parse(published.value()).value().where, "s3cret", knock);
  EXPECT_EQ(knocked.outcome, AddressRace::Outcome::connected) << knocked.why.message();
  EXPECT_TRUE(session.store().set_one(address_key(1), local_address(*listener).text() + " 1").ok());
  making.join();
  pollfd entry{listener->get(), POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, 20'000), 1) << "nobody calls back";
}

}  // namespace
}  // namespace lockstep::internal
