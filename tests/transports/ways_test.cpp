// Finding the ways of a job: how long it may take, and what is made of what others tell.
#include "transports/tcp/ways.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "lib/bootstrap/exchange.hpp"
#include "lib/bootstrap/memory_store.hpp"
#include "transports/tcp/reachability.hpp"

namespace lockstep::internal {
namespace {

/// Rank 2 of three, on two hosts: the others speak for them.
class ListeningSession final : public Session {
 public:
  ListeningSession() : store_(open_memory_store("ways-" + std::to_string(real_env().random()))) {
    for (const char* host : {"a", "b", "b"}) {
      Member member;
      member.rank = static_cast<int>(members_.size());
      member.host_id = member.host_name = host;
      members_.push_back(member);
    }
  }
  int rank() const override { return 2; }
  int size() const override { return 3; }
  const std::vector<Member>& members() const override { return members_; }
  const std::string& job_id() const override { return text_; }
  const std::string& secret() const override { return text_; }
  Store& store() override { return *store_; }
  const std::string& source() const override { return text_; }
  void on_loss(std::uint64_t, std::function<void(const Loss&)>) override {}
  void remove_loss_callback(std::uint64_t) override {}
  void report_loss(const Loss&) override {}
  void leave() override {}

 private:
  std::vector<Member> members_;
  std::string text_ = "ways";
  std::unique_ptr<Store> store_;
};

/// A clock that goes on by a second whenever it is read.
class SteppingClock final : public Env {
 public:
  explicit SteppingClock(std::function<void(Nanos)> passed) : passed_(std::move(passed)) {}
  Nanos now() noexcept override {
    now_ += to_nanos(std::chrono::seconds(1));
    passed_(now_);
    return now_;
  }
  std::uint64_t random() noexcept override { return 1; }
  void wake_at(Nanos) noexcept override {}

  Nanos now_ = 0;

 private:
  std::function<void(Nanos)> passed_;
};

TEST(Ways, OneTimeoutIsForTheWholeSearch) {
  ListeningSession session;
  const PublishedAddress mine{{{"127.0.0.1", 1}}, 1, 1};
  const Nanos second = to_nanos(std::chrono::seconds(1));
  bool told = false;
  SteppingClock clock([&](Nanos now) {
    if (now < 9 * second || std::exchange(told, true)) return;
    for (const int rank : {0, 1}) {
      ASSERT_TRUE(session.store().set_one(exchange_key(kPublishedName, rank), mine.text()).ok());
    }
  });
  const HandshakeKey key = make_handshake_key(session.job_id(), session.secret());
  auto ways = find_ways(session, clock, Reactor::instance(), key, mine, std::chrono::seconds(10));
  ASSERT_FALSE(ways.ok());
  EXPECT_EQ(ways.status().code(), ErrorCode::timeout);
  EXPECT_NE(ways.status().message().find("the ways between hosts"), std::string::npos)
      << ways.status().message();
  EXPECT_LT(clock.now_, 14 * second);
}

/// What rank 2 finds where the others have told this.
Result<Ways> ways_where(const PublishedAddress& first, const PublishedAddress& second,
                        const ReachRow& reached) {
  ListeningSession session;
  const ReachRow back{{1, "10.0.0.9", "", {}}};
  for (const Store::Entry& told : {Store::Entry{exchange_key(kPublishedName, 0), first.text()},
                                   {exchange_key(kPublishedName, 1), second.text()},
                                   {exchange_key("tcp-reach", 0), encode(back)},
                                   {exchange_key("tcp-reach", 1), encode(reached)}})
    EXPECT_TRUE(session.store().set_one(told.first, told.second).ok());
  const PublishedAddress mine{{{"10.0.0.9", 1}}, 2, 1};
  const HandshakeKey key = make_handshake_key(session.job_id(), session.secret());
  return find_ways(session, real_env(), Reactor::instance(), key, mine, std::chrono::seconds(20));
}

std::vector<std::string> hosts_of(const std::vector<HostPort>& addresses) {
  std::vector<std::string> hosts;
  for (const HostPort& one : addresses) hosts.push_back(one.host);
  return hosts;
}

// Two of rank 0's addresses are rails.
TEST(Ways, WhatAnsweredIsTriedFirstAndRailsAreThoseThatDid) {
  const PublishedAddress first{{{"10.0.0.1", 1}, {"10.1.0.1", 2}, {"10.2.0.1", 3}}, 2, 2};
  const PublishedAddress second{{{"10.0.0.8", 1}, {"10.1.0.8", 2}}, 2, 2};
  using Hosts = std::vector<std::string>;
  struct Case {
    Hosts answered, order;
    int rails;
  };
  for (const auto& [answered, order, rails] :
       {Case{{"10.0.0.1", "10.1.0.1"}, {"10.0.0.1", "10.1.0.1", "10.2.0.1"}, 2},
        Case{{"10.1.0.1"}, {"10.1.0.1", "10.0.0.1", "10.2.0.1"}, 1},
        Case{{"10.1.0.1", "10.2.0.1"}, {"10.1.0.1", "10.2.0.1", "10.0.0.1"}, 1},
        Case{{"10.2.0.1"}, {"10.2.0.1", "10.0.0.1", "10.1.0.1"}, 0}}) {
    const auto ways = ways_where(first, second, {{0, answered.front(), "", answered}});
    ASSERT_TRUE(ways.ok()) << ways.status().message();
    EXPECT_EQ(hosts_of(ways.value().addresses[0]), order);
    EXPECT_EQ(ways.value().rails[0], rails);
    EXPECT_EQ(hosts_of(ways.value().addresses[1]), (Hosts{"10.0.0.8", "10.1.0.8"})) << "of the same host";
    EXPECT_EQ(ways.value().rails[1], 2);
  }
}

TEST(Ways, ANumberOfSocketsThatDiffersIsNamed) {
  const PublishedAddress as_mine{{{"10.0.0.1", 1}}, 2, 1}, other{{{"10.0.0.8", 1}}, 4, 1};
  const Status status = ways_where(as_mine, other, {}).status();
  EXPECT_EQ(status.code(), ErrorCode::configuration);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_NE(status.message().find("LOCKSTEP_TCP_SOCKETS is 2 on rank 2 and 4 on rank 1"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace lockstep::internal
