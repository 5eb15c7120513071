// Finding the ways of a job: how long it may take.
#include "transports/tcp/ways.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "lib/bootstrap/exchange.hpp"
#include "lib/bootstrap/memory_store.hpp"

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

}  // namespace
}  // namespace lockstep::internal
