// Progressors of the reactor: when it looks at them, when it sleeps for them, and who wakes it.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "lib/net/progress_roster.hpp"
#include "lib/net/reactor.hpp"
#include "tests/net/reactor_fixture.hpp"
#include "tests/support/eventually.hpp"

namespace lockstep::internal {
namespace {

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

}  // namespace
}  // namespace lockstep::internal
