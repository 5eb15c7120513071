// The reactor on real descriptors and threads: who is called, who is not any more, and who wakes whom.
#include "lib/net/reactor.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <new>
#include <thread>

#include "lib/net/progress_roster.hpp"
#include "tests/support/eventually.hpp"

namespace lockstep::internal {
namespace {

Fd make_eventfd() { return Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)); }

void write_eventfd(const Fd& fd) {
  const std::uint64_t one = 1;
  ASSERT_EQ(write(fd.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
}

void drain_eventfd(const Fd& fd) {
  std::uint64_t value = 0;
  [[maybe_unused]] const ssize_t got = read(fd.get(), &value, sizeof value);
}

// Runs everything that was posted before.
void flush() {
  std::promise<void> done;
  Reactor::instance().post([&] { done.set_value(); });
  done.get_future().wait();
}

TEST(Reactor, RunsTasksInOrderOnOneThreadThatBlocksSignals) {
  std::promise<std::vector<int>> result;
  std::vector<int> order;
  bool blocked = false;
  for (int i = 0; i < 3; ++i) Reactor::instance().post([&, i] { order.push_back(i); });
  Reactor::instance().post([&] {
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, nullptr, &set);
    blocked = sigismember(&set, SIGINT) == 1 && sigismember(&set, SIGCHLD) == 1;
    result.set_value(order);
  });
  EXPECT_EQ(result.get_future().get(), (std::vector<int>{0, 1, 2}));
  EXPECT_TRUE(blocked);
}

TEST(Reactor, SaysOnceThatATaskNeverFindsMemory) {
  ::testing::internal::CaptureStderr();
  std::promise<void> done;
  Reactor::instance().post([&, tries = 0]() mutable {
    if (++tries < 1500) throw std::bad_alloc();
    done.set_value();
  });
  done.get_future().wait();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "lockstep: the progress thread finds no memory for what it has to do, and goes on trying\n");
}

TEST(Reactor, FiresATimerAgainThatFoundNoMemory) {
  std::promise<void> done;
  Reactor::instance().at(0, [&, tries = 0]() mutable {
    if (++tries < 3) throw std::bad_alloc();
    done.set_value();
  });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(Reactor, CallsWatchersAndStopsAfterRemove) {
  const Fd fd = make_eventfd();
  std::atomic<int> calls{0};
  std::promise<void> first;
  const auto handle = Reactor::instance().watch(fd.get(), EPOLLIN, [&](std::uint32_t events) {
    EXPECT_TRUE(events & EPOLLIN);
    drain_eventfd(fd);
    if (calls.fetch_add(1) == 0) first.set_value();
  });
  ASSERT_NE(handle, 0u);
  write_eventfd(fd);
  first.get_future().wait();
  Reactor::instance().remove(handle);
  write_eventfd(fd);
  flush();
  EXPECT_EQ(calls.load(), 1);
}

TEST(Reactor, ModifyChangesTheEvents) {
  const Fd fd = make_eventfd();
  std::promise<std::uint32_t> writable;
  std::atomic<Reactor::Handle> handle{0};
  handle = Reactor::instance().watch(fd.get(), 0, [&](std::uint32_t events) {
    writable.set_value(events);
    Reactor::instance().remove(handle);
  });
  Reactor::instance().modify(handle, EPOLLOUT);
  EXPECT_TRUE(writable.get_future().get() & EPOLLOUT);
  flush();
}

TEST(Reactor, RefusesADescriptorThatCannotBeWatched) {
  EXPECT_EQ(Reactor::instance().watch(-1, EPOLLIN, [](std::uint32_t) {}), 0u);
}

TEST(Reactor, RemoveWaitsForARunningCallback) {
  const Fd fd = make_eventfd();
  std::promise<void> entered;
  std::promise<void> release;
  std::atomic<bool> left{false};
  const auto handle = Reactor::instance().watch(fd.get(), EPOLLIN, [&](std::uint32_t) {
    drain_eventfd(fd);
    entered.set_value();
    release.get_future().wait();
    left = true;
  });
  write_eventfd(fd);
  entered.get_future().wait();
  std::promise<void> removes;
  std::thread remover([&] {
    removes.set_value();
    Reactor::instance().remove(handle);
    EXPECT_TRUE(left.load());
  });
  removes.get_future().wait();
  poll(nullptr, 0, 50);  // So that it would be through.
  release.set_value();
  remover.join();
}

TEST(Reactor, FiresTimersInOrderAndNotTheRemovedOnes) {
  const Nanos now = real_env().now();
  std::vector<int> order;
  std::promise<void> done;
  Reactor& reactor = Reactor::instance();
  reactor.run_there([&] {  // Where none fires before all are set.
    reactor.at(now + 30'000'000, [&] { done.set_value(); });
    reactor.at(now + 20'000'000, [&] { order.push_back(2); });
    const auto removed = reactor.at(now + 10'000'000, [&] { order.push_back(1); });
    reactor.at(now, [&] { order.push_back(0); });
    reactor.remove(removed);
  });
  done.get_future().wait();
  EXPECT_EQ(order, (std::vector<int>{0, 2}));
  EXPECT_GE(real_env().now(), now + 30'000'000);
}

// Moves once for every unit of work; stuck while somebody still owes it one.
class Counter final : public Progressor {
 public:
  Counter() : bell_(make_eventfd()) {}
  Outcome progress() override {
    if (in_.load()) ADD_FAILURE() << "two threads in one progressor";
    in_ = true;
    const bool moved = work_.load() > 0;
    if (moved) {
      work_.fetch_sub(1);
      done_.fetch_add(1);
    }
    in_ = false;
    if (moved) return Outcome::moved;
    return done_.load() < expected_.load() ? Outcome::stuck : Outcome::idle;
  }
  int arm() override {
    armed_ = true;
    if (armings_.fetch_add(1) == 0) slept_.set_value();
    return bell_.get();
  }
  void disarm() override {
    armed_ = false;
    drain_eventfd(bell_);
  }
  void expect(int count) { expected_ = count; }
  // As a peer would: publishes, then rings the sleeper.
  void give() {
    work_.fetch_add(1);
    write_eventfd(bell_);
  }
  bool armed() const { return armed_; }
  int done() const { return done_; }
  int armings() const { return armings_; }
  void wait_until_done(int count) const {
    while (done_.load() < count) std::this_thread::yield();
  }
  std::future<void> slept() { return slept_.get_future(); }

 private:
  Fd bell_;
  std::atomic<int> work_{0}, expected_{0}, done_{0}, armings_{0};
  std::atomic<bool> armed_{false}, in_{false};
  std::promise<void> slept_;
};

TEST(Reactor, SleepsOnAStuckProgressorsDescriptorAndWakesForIt) {
  Counter counter;
  counter.expect(1);
  auto slept = counter.slept();
  Reactor::instance().add(&counter);
  slept.wait();
  counter.give();
  counter.wait_until_done(1);
  Reactor::instance().remove(&counter);
  EXPECT_FALSE(counter.armed());
  EXPECT_EQ(counter.done(), 1);
}

TEST(Reactor, LooksAtAStuckProgressorNowAndThen) {
  Counter counter;
  counter.expect(1);
  Reactor::instance().add(&counter);
  EXPECT_TRUE(lockstep::testing::eventually([&] { return counter.armings() >= 3; }));
  Reactor::instance().remove(&counter);
}

// Nothing can wake the thread for it.
TEST(Reactor, LooksAgainAtAStuckProgressorThatHasNoDescriptor) {
  class Blind final : public Progressor {
   public:
    Outcome progress() override {
      ++looks;
      return Outcome::stuck;
    }
    int arm() override { return -1; }
    void disarm() override {}
    std::atomic<int> looks{0};
  };
  Blind blind;
  Reactor::instance().add(&blind);
  EXPECT_TRUE(lockstep::testing::eventually([&] { return blind.looks >= 100; }));
  Reactor::instance().remove(&blind);
}

// While it looks at the one that is stuck, too.
TEST(Reactor, LeavesAnIdleProgressorAlone) {
  Counter idle, stuck;
  stuck.expect(1);
  Reactor::instance().add(&idle);
  Reactor::instance().add(&stuck);
  flush();
  const int before = stuck.armings();
  EXPECT_TRUE(lockstep::testing::eventually([&] { return stuck.armings() >= before + 3; }));
  EXPECT_EQ(idle.armings(), 0);
  Reactor::instance().remove(&stuck);
  Reactor::instance().remove(&idle);
}

TEST(Reactor, RemoveLetsGoOfASleepingProgressor) {
  Counter counter;
  counter.expect(1);
  auto slept = counter.slept();
  Reactor::instance().add(&counter);
  slept.wait();
  Reactor::instance().remove(&counter);
  EXPECT_FALSE(counter.armed());
  counter.give();
  Reactor::instance().notify();
  flush();
  EXPECT_EQ(counter.done(), 0);
}

// On its own thread nobody waits until the sleep is over.
TEST(Reactor, RemoveByAnotherProgressorLetsGoOfOneThatIsArmed) {
  class Remover final : public Progressor {
   public:
    explicit Remover(Counter& victim) : victim_(victim) {}
    Outcome progress() override {
      if (!armed_ || done) return done ? Outcome::idle : Outcome::stuck;
      Reactor::instance().remove(&victim_);
      EXPECT_FALSE(victim_.armed());
      done = true;
      return Outcome::moved;
    }
    int arm() override {
      armed_ = true;
      return -1;
    }
    void disarm() override { armed_ = false; }
    std::atomic<bool> done{false};

   private:
    Counter& victim_;
    bool armed_ = false;
  };
  Counter victim;
  victim.expect(1);
  Remover remover(victim);
  Reactor::instance().add(&victim);
  Reactor::instance().add(&remover);
  EXPECT_TRUE(lockstep::testing::eventually([&] { return remover.done.load(); }));
  Reactor::instance().remove(&remover);
}

/// As where the work that it has just ended has begun another's.
class NotifiesOnce final : public Progressor {
 public:
  Outcome progress() override {
    if (++calls == 1) Reactor::instance().notify();
    return Outcome::idle;
  }
  int arm() override { return -1; }
  void disarm() override {}
  std::atomic<int> calls{0};
};

TEST(Reactor, ANotificationOnItsOwnThreadIsNotLostWhenItGoesToSleep) {
  flush();
  NotifiesOnce progressor;
  Reactor::instance().add(&progressor);
  EXPECT_TRUE(testing::eventually([&] { return progressor.calls.load() >= 2; }));
  Reactor::instance().remove(&progressor);
}

class Removes final : public Progressor {
 public:
  std::function<void()> then;
  int calls = 0;
  Outcome progress() override {
    ++calls;
    if (then) then();
    return Outcome::stuck;
  }
  int arm() override { return -1; }
  void disarm() override {}
};

// It may be gone.
TEST(ProgressRoster, CallsNobodyWhomAnotherHasRemovedInTheSameStep) {
  ProgressRoster roster;
  Removes first, second;
  first.then = [&] { roster.remove(&second, {}); };
  roster.add(&first);
  roster.add(&second);
  roster.step();
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(second.calls, 0);
}

TEST(Reactor, NotifyWakesAnIdleProgressor) {
  Counter counter;
  Reactor::instance().add(&counter);
  flush();
  for (int round = 1; round <= 200; ++round) {
    counter.expect(round);
    counter.give();
    Reactor::instance().notify();
    counter.wait_until_done(round);
  }
  Reactor::instance().remove(&counter);
}

// Moves in every other round, as an operation of two ranks that yield to each other does, so that the thread
// never rests.
class Alternating final : public Progressor {
 public:
  explicit Alternating(bool moves_first) : moves_(moves_first) {}
  Outcome progress() override {
    moves_ = !moves_;
    return moves_ ? Outcome::stuck : Outcome::moved;
  }
  int arm() override { return -1; }
  void disarm() override {}

 private:
  bool moves_;
};

// In which rounds it moves must not matter, so both halves of the rounds are tried.
TEST(Reactor, RunsTasksTimersAndWatchersWhileProgressorsNeverRest) {
  for (const bool moves_first : {true, false}) {
    const Fd fd = make_eventfd();
    std::atomic<int> ran{0};
    Alternating busy(moves_first);
    Reactor& reactor = Reactor::instance();
    flush();
    reactor.add(&busy);
    const auto watch = reactor.watch(fd.get(), EPOLLIN, [&](std::uint32_t) {
      drain_eventfd(fd);
      ++ran;
    });
    const auto timer = reactor.at(0, [&] { ++ran; });
    reactor.post([&] { ++ran; });
    write_eventfd(fd);
    for (int i = 0; i < 20'000 && ran < 3; ++i) poll(nullptr, 0, 1);
    EXPECT_EQ(ran, 3) << (moves_first ? "moving first" : "stuck first");
    reactor.remove(&busy);
    reactor.remove(watch);
    reactor.remove(timer);
    flush();
  }
}

TEST(Reactor, AddAndRemoveFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int round = 0; round < 100; ++round) {
        Counter counter;
        counter.expect(1);
        Reactor::instance().add(&counter);
        if (round % 2 == 0) counter.give();
        Reactor::instance().remove(&counter);
        EXPECT_FALSE(counter.armed());
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(Reactor, IsInertInAForkedChild) {
  Reactor::instance();
  const pid_t child = fork();
  if (child == 0) {
    Reactor& reactor = Reactor::instance();
    reactor.post([] {});
    reactor.notify();
    const bool refused = reactor.watch(0, EPOLLIN, [](std::uint32_t) {}) == 0 && reactor.at(0, [] {}) == 0;
    _exit(refused && in_forked_child() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace lockstep::internal
