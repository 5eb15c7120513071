// Stores that are late themselves: their server has no turn, or another has the file locked. Time is the
// test's: what is waited for takes as long as the test says, and no longer.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <utility>

#include "lib/bootstrap/exchange.hpp"
#include "lib/bootstrap/file_lock.hpp"
#include "lib/bootstrap/file_store.hpp"
#include "lib/bootstrap/group_store.hpp"
#include "lib/bootstrap/local_session.hpp"
#include "lib/bootstrap/loss_board.hpp"
#include "lib/bootstrap/loss_channel.hpp"
#include "lib/bootstrap/roll_call.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/bootstrap/tcp_store.hpp"
#include "lib/net/stream_io.hpp"
#include "tests/bootstrap/store_fixtures.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

/// Every look at the clock takes `step`.
class SteppingEnv final : public Env {
 public:
  explicit SteppingEnv(milliseconds step) : step_(to_nanos(step)) {}
  Nanos now() noexcept override {
    const Nanos time = now_.fetch_add(step_);
    ++looks_;
    return time;
  }
  std::uint64_t random() noexcept override { return 7; }
  void wake_at(Nanos) noexcept override {}
  void pass(milliseconds time) { now_ += to_nanos(time); }
  /// Until a thread that waits has looked at the clock `times` more.
  void await_looks(int times) const {
    const int until = looks_ + times;
    for (int i = 0; i < 20'000 && looks_ < until; ++i) poll(nullptr, 0, 1);
    EXPECT_GE(looks_, until) << "nobody waits any more";
  }

 private:
  const Nanos step_;
  std::atomic<Nanos> now_{1'000'000'000};
  std::atomic<int> looks_{0};
};

/// What a store tells of itself while it is waited for.
class Told {
 public:
  WhileWaiting ear() {
    return [this](const Status& why) {
      std::lock_guard lock(mutex_);
      last_ = why.message();
      if (!std::exchange(any_, true)) first_.set_value();
    };
  }
  bool any() {
    std::lock_guard lock(mutex_);
    return any_;
  }
  std::string await() {
    EXPECT_EQ(first_.get_future().wait_for(kSoon), std::future_status::ready) << "it tells nothing";
    std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  std::mutex mutex_;
  std::promise<void> first_;
  bool any_ = false;
  std::string last_;
};

// ---- a server without a turn -----------------------------------------------------------------------------

/// The process's reactor, which serves the store here, stands still.
class StoppedReactor {
 public:
  StoppedReactor() {
    std::promise<void> stands;
    Reactor::instance().post([this, &stands] {
      stands.set_value();
      go_on_.get_future().wait();
    });
    stands.get_future().wait();
  }
  ~StoppedReactor() { go_on_.set_value(); }
  StoppedReactor(const StoppedReactor&) = delete;
  StoppedReactor& operator=(const StoppedReactor&) = delete;

 private:
  std::promise<void> go_on_;
};

class LateServer : public testing::Test {
 protected:
  LateServer() {
    StoreServerOptions options;
    options.key = make_handshake_key("job", "secret");
    auto server = StoreServer::start(options);
    EXPECT_TRUE(server.ok()) << server.status().message();
    server_ = std::move(*server);
    StoreClientOptions client;
    client.server = server_->address();
    client.key = options.key;
    client.served_by = "rank 0";
    auto store = open_tcp_store(client, kSoon, env_, told_.ear());
    EXPECT_TRUE(store.ok()) << store.status().message();
    store_ = std::move(*store);
  }

  SteppingEnv env_{milliseconds(0)};
  Told told_;
  std::unique_ptr<StoreServer> server_;
  std::unique_ptr<Store> store_;
};

TEST_F(LateServer, IsWaitedForByAStart) {
  store_->be_patient_until(env_.now() + to_nanos(std::chrono::seconds(60)));
  auto stopped = std::make_unique<StoppedReactor>();
  auto sum = std::async(std::launch::async, [&] { return store_->add("arrivals", 1); });
  env_.await_looks(1);
  env_.pass(kStorePatience + milliseconds(4'000));
  env_.await_looks(2);
  stopped.reset();
  const auto result = sum.get();
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result.value(), 1);
}

TEST_F(LateServer, IsNamedToAStartAndInItsError) {
  store_->be_patient_until(env_.now() + to_nanos(std::chrono::seconds(60)));
  const StoppedReactor stopped;
  auto sum = std::async(std::launch::async, [&] { return store_->add("arrivals", 1); });
  env_.await_looks(6);  // The sixth is behind its first wait.
  EXPECT_FALSE(told_.any());
  env_.pass(kLateAfter);
  const std::string name = "the store at " + server_->address().text() + ", which rank 0 serves, has not ";
  EXPECT_EQ(told_.await(), name + "answered for 5 s: is its process, or its host, stopped?");
  env_.pass(std::chrono::seconds(60));
  EXPECT_EQ(sum.get().status().message(), name + "answered for 65 s: is its process, or its host, stopped?");
}

TEST_F(LateServer, IsNotWaitedForBeyondTheStart) {
  store_->be_patient_until(env_.now() + to_nanos(std::chrono::seconds(3)));
  const StoppedReactor stopped;
  auto sum = std::async(std::launch::async, [&] { return store_->add("arrivals", 1); });
  env_.await_looks(6);
  env_.pass(std::chrono::seconds(3) + kLastMoment);
  EXPECT_EQ(sum.wait_for(kSoon), std::future_status::ready);
  env_.pass(kStorePatience);  // Should this fail, it ends now.
  EXPECT_EQ(sum.get().status().code(), ErrorCode::timeout);
}

TEST_F(LateServer, IsATimeoutOtherwise) {
  const StoppedReactor stopped;
  auto sum = std::async(std::launch::async, [&] { return store_->add("arrivals", 1); });
  env_.await_looks(5);  // The fifth is before it waits: by then its deadline is set.
  env_.pass(2 * kStorePatience);
  EXPECT_EQ(sum.get().status().code(), ErrorCode::timeout);
  EXPECT_FALSE(told_.any());
}

// It stands in the queue of a server that others keep busy: another attempt would stand behind them all.
TEST(BusyServer, IsWaitedForInOneConnection) {
  auto listener = tcp_listen({"127.0.0.1", 0});  // Accepts in the kernel, and never says a word.
  ASSERT_TRUE(listener.ok()) << listener.status().message();
  StoreClientOptions options;
  options.server = local_address(*listener);
  options.key = make_handshake_key("job", "secret");
  SteppingEnv env(milliseconds(0));
  std::promise<std::string> told;
  const auto tell = [&, first = true](const Status& why) mutable {
    if (std::exchange(first, false)) told.set_value(why.message());
  };
  auto socket = std::async(std::launch::async, [&] {
    return connect_to_server(options, HandshakeService::store, std::chrono::seconds(60), env, tell);
  });
  pollfd waiting{listener->get(), POLLIN, 0};
  ASSERT_EQ(poll(&waiting, 1, 20'000), 1);
  const auto first = accept_connection(*listener);
  env.pass(2 * kHandshakeDeadline);
  env.await_looks(8);  // The sixth of another attempt would be behind its connect().
  EXPECT_EQ(poll(&waiting, 1, 0), 0) << "it connects again";
  env.pass(std::chrono::seconds(60));
  EXPECT_EQ(socket.get().status().code(), ErrorCode::timeout);
  EXPECT_EQ(told.get_future().get(),
            "the store at " + options.server.text() + " could not be reached: no answer in time");
}

// ---- a locked file ---------------------------------------------------------------------------------------

constexpr std::int64_t kContentLock = 1;  // As in file_store.cpp.

/// Another opening of the store's file, by a process that stands still with the content locked.
class LockedElsewhere {
 public:
  explicit LockedElsewhere(const std::string& path) : file_(open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    const auto held = try_lock_byte(file_, kContentLock, LockKind::exclusive);
    EXPECT_TRUE(held.ok() && held.value());
  }

 private:
  Fd file_;
};

class LockedFile : public testing::Test {
 protected:
  std::unique_ptr<Store> open(Env& env) {
    auto store = open_file_store(path_, kSoon, env);
    EXPECT_TRUE(store.ok()) << store.status().message();
    return std::move(*store);
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/store";
};

TEST_F(LockedFile, EndsEveryCallAfterItsPatience) {
  SteppingEnv env(milliseconds(500));
  const auto store = open(env);
  const LockedElsewhere other(path_);
  const Status set = store->set_one("x", "1");
  EXPECT_EQ(set.code(), ErrorCode::timeout);
  EXPECT_EQ(set.message(), "another process keeps the store in " + path_ + " locked: is it stopped?");
  EXPECT_EQ(store->add("sum", 1).status().code(), ErrorCode::timeout);
  EXPECT_EQ(store->get_one("x", milliseconds(1)).status().code(), ErrorCode::timeout);
  EXPECT_EQ(store->wait(std::vector<std::string>{"x"}, milliseconds(1)).status().code(), ErrorCode::timeout);
}

TEST_F(LockedFile, IsWaitedForByAStart) {
  SteppingEnv env(milliseconds(0));
  const auto store = open(env);
  store->be_patient_until(env.now() + to_nanos(std::chrono::seconds(60)));
  auto other = std::make_unique<LockedElsewhere>(path_);
  auto sum = std::async(std::launch::async, [&] { return store->add("arrivals", 1); });
  env.await_looks(4);
  env.pass(kStorePatience + milliseconds(4'000));
  env.await_looks(4);
  other.reset();
  EXPECT_EQ(sum.get().value(), 1);
}

TEST_F(LockedFile, IsNamedToAStart) {
  SteppingEnv env(milliseconds(500));
  Told told;
  auto opened = open_file_store(path_, kSoon, env, told.ear());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const LockedElsewhere other(path_);
  EXPECT_EQ(opened.value()->set_one("x", "1").code(), ErrorCode::timeout);
  EXPECT_FALSE(told.any());
  opened.value()->be_patient_until(env.now() + to_nanos(std::chrono::seconds(60)));
  EXPECT_EQ(opened.value()->set_one("x", "1").code(), ErrorCode::timeout);
  EXPECT_EQ(told.await(), "another process keeps the store in " + path_ + " locked: is it stopped?");
}

/// Each call of a start whose time is over, however many it makes.
TEST_F(LockedFile, IsNotWaitedForBeyondTheStart) {
  SteppingEnv env(milliseconds(100));
  GroupStore store(open(env), 1);
  const LockedElsewhere other(path_);
  const Nanos end = env.now() + to_nanos(std::chrono::seconds(3));
  store.be_patient_until(end);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(store.set_one("x", "1").code(), ErrorCode::timeout);
  EXPECT_LT(env.now(), end + to_nanos(kLastMoment + std::chrono::seconds(2)))
      << "looks at the clock of 100 ms";
}

// Who wrote that it comes first is stopped before it says what the others are compared with.
TEST_F(LockedFile, RanksThatSetNothingAreNotWaitedForBeyondTheStart) {
  SteppingEnv env(milliseconds(100));
  GroupStore store(open(env), 1);
  ASSERT_EQ(store.add("readers", 1).value(), 1);
  const Deadline deadline(env, std::chrono::seconds(3));
  EXPECT_EQ(RollCall(store, this_member(1), 2, "", "", deadline).arrive().code(), ErrorCode::timeout);
  EXPECT_LT(env.now(), deadline.when() + to_nanos(kLastMoment));
}

TEST_F(LockedFile, IsLeftAloneByAReactor) {
  SteppingEnv env(milliseconds(1));
  const auto store = open(env);
  const LockedElsewhere other(path_);
  const std::vector<std::string> keys{"x"};
  Reactor::instance().run_there([&] {
    const Nanos before = env.now();
    EXPECT_EQ(store->wait(keys, milliseconds(0)).status().code(), ErrorCode::timeout);
    EXPECT_EQ(store->set_one("x", "1").code(), ErrorCode::timeout);
    EXPECT_LT(env.now() - before, to_nanos(milliseconds(100))) << "looks at the clock, of 1 ms each";
  });
}

// Rank 1 ends while another rank stands still with the file locked.
TEST_F(LockedFile, StopsNoReactorAndHidesNoDeath) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto store = open(real_env());
  const auto board = LossBoard::make(0, 2);
  std::vector<Member> members{this_member(0), this_member(1)};
  members[1].pid = child;
  members[1].process += 1;
  auto channel = make_store_loss_channel(*store, 0, members, board);
  {
    const LockedElsewhere other(path_);
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    channel->report({1, "gone, says its link"});
    std::promise<void> turned;
    Reactor::instance().post([&] { turned.set_value(); });
    // Should this fail, the end of the lock lets the reactor go on.
    EXPECT_EQ(turned.get_future().wait_for(kSoon), std::future_status::ready) << "the reactor waits";
  }
  const auto told = store->get_one("lost/1", kSoon);
  ASSERT_TRUE(told.ok()) << told.status().message();
  EXPECT_TRUE(board->first().has_value());
}

TEST_F(LockedFile, KeepsTheFirstEvidenceOfALoss) {
  const auto store = open(real_env());
  ASSERT_TRUE(store->set_one("lost/1", "killed").ok());
  const std::vector<Member> members{this_member(0), this_member(1)};
  const auto channel = make_store_loss_channel(*store, 0, members, LossBoard::make(0, 2));
  channel->report({1, "its link ended"});
  Reactor::instance().run_there([] {});  // Behind the report.
  EXPECT_EQ(store->get_one("lost/1", milliseconds(0)).value(), "killed");
}

// Rank 0 ends after a failure while another rank has the file locked for a moment.
TEST_F(LockedFile, IsWaitedForByARankThatReportsItself) {
  SteppingEnv env(milliseconds(0));
  const auto store = open(env);
  const std::vector<Member> members{this_member(0), this_member(1)};
  auto other = std::make_unique<LockedElsewhere>(path_);
  auto ended = std::async(std::launch::async, [&] {
    const auto channel = make_store_loss_channel(*store, 0, members, LossBoard::make(0, 2));
    channel->report({0, "it ended after a failure"});
  });
  ended.wait_for(milliseconds(100));
  other.reset();
  ended.get();
  const auto told = store->get_one("lost/0", milliseconds(0));
  ASSERT_TRUE(told.ok()) << told.status().message();
  EXPECT_EQ(told.value(), "it ended after a failure");
}

TEST_F(LockedFile, IsNotWaitedForWithoutEndWhenItIsOpenedOrClosed) {
  auto store = open(real_env());
  const Fd other(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(try_lock_byte(other, 2, LockKind::exclusive).value());  // Somebody else closes, and is stopped.
  store.reset();
  EXPECT_EQ(directory_.entries(), 1u);
  ASSERT_TRUE(
      try_lock_byte(other, 0, LockKind::exclusive).value());  // Somebody starts it anew, and is stopped.
  SteppingEnv env(milliseconds(500));
  EXPECT_EQ(open_file_store(path_, kSoon, env).status().code(), ErrorCode::timeout);
}

// ---- exchange --------------------------------------------------------------------------------------------

TEST(Exchange, WaitsForATimeThatCannotBeAddedToNow) {
  const auto sessions = make_local_sessions(2);
  const std::vector<int> ranks{0, 1};
  const auto meet = [&](std::size_t rank, Env& env) {
    return exchange(*sessions[rank], env, "x", std::to_string(rank), ranks, "the numbers",
                    std::chrono::hours(9'999'999));
  };
  SteppingEnv env(milliseconds(0));
  auto first = std::async(std::launch::async, [&] { return meet(0, env); });
  env.await_looks(3);  // Has looked in vain.
  EXPECT_TRUE(meet(1, env).ok());
  const auto values = first.get();
  ASSERT_TRUE(values.ok()) << values.status().message();
  EXPECT_EQ(values.value(), (std::vector<std::string>{"0", "1"}));
}

}  // namespace
}  // namespace lockstep::internal
