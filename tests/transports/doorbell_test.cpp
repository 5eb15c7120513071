// The doorbell between threads and between processes: every change is noticed by a sleeper that has no
// time-out.
#include "transports/doorbell.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "tests/support/forked.hpp"

namespace lockstep::internal {
namespace {

constexpr std::uint64_t kRounds = 2000;

// Two players hand a counter to and fro; each sleeps whenever it is not its turn.
struct Table {
  std::atomic<std::uint64_t> turn{0};
  std::array<Doorbell, 2> bell{};
};

void sleep_in_poll(int bell_fd) {
  pollfd entry{bell_fd, POLLIN, 0};
  ::poll(&entry, 1, -1);
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t drained = ::read(bell_fd, &rung, sizeof rung);
}

// With descriptors the players sleep in poll, else on the futex.
void play(Table& table, std::uint64_t me, const std::array<int, 2>& bell_fds) {
  const bool in_poll = bell_fds[me] >= 0;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t mine = 2 * round + me;
    while (table.turn.load(std::memory_order_acquire) != mine) {
      declare_asleep(table.bell[me], in_poll);
      if (table.turn.load(std::memory_order_acquire) != mine) {
        in_poll ? sleep_in_poll(bell_fds[me]) : sleep_on(table.bell[me], kForever);
      }
      declare_awake(table.bell[me]);
    }
    table.turn.store(mine + 1, std::memory_order_release);
    ring(table.bell[1 - me], bell_fds[1 - me]);
  }
}

void play_with_threads(const std::array<int, 2>& bell_fds) {
  Table table;
  std::thread other([&] { play(table, 1, bell_fds); });
  play(table, 0, bell_fds);
  other.join();
  EXPECT_EQ(table.turn.load(), 2 * kRounds);
}

class Bells {
 public:
  Bells() : fds{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {}
  ~Bells() {
    for (int fd : fds) ::close(fd);
  }
  const std::array<int, 2> fds;
};

TEST(Doorbell, ThreadsOnTheFutex) { play_with_threads({-1, -1}); }

TEST(Doorbell, ThreadsInPoll) {
  const Bells bells;
  play_with_threads(bells.fds);
}

TEST(Doorbell, ProcessesOnTheFutex) {
  testing::Shared<Table> table;
  testing::run_forked(2, [&](int me) { play(*table, static_cast<std::uint64_t>(me), {-1, -1}); });
  EXPECT_EQ(table->turn.load(), 2 * kRounds);
}

TEST(Doorbell, ProcessesInPoll) {
  const Bells bells;
  testing::Shared<Table> table;
  testing::run_forked(2, [&](int me) { play(*table, static_cast<std::uint64_t>(me), bells.fds); });
  EXPECT_EQ(table->turn.load(), 2 * kRounds);
}

TEST(Doorbell, RungBetweenDeclaringAndSleepingDoesNotSleep) {
  Doorbell bell{};
  declare_asleep(bell, false);
  ring(bell, -1);
  sleep_on(bell, kForever);
  declare_asleep(bell, false);
  sleep_on(bell, 1'000'000);  // Nobody rings: the time-out ends it.
  declare_awake(bell);
}

TEST(Doorbell, WakesAllThreadsThatSleepOnIt) {
  Doorbell bell{};
  declare_asleep(bell, false);
  std::array<std::thread, 4> sleepers;
  for (std::thread& sleeper : sleepers) sleeper = std::thread([&] { sleep_on(bell, kForever); });
  ::poll(nullptr, 0, 50);  // So that they do sleep.
  ring(bell, -1);
  for (std::thread& sleeper : sleepers) sleeper.join();
}

TEST(Doorbell, RingingTheAwakeTouchesNoDescriptor) {
  const Bells bells;
  Doorbell bell{};
  ring(bell, bells.fds[0]);
  pollfd entry{bells.fds[0], POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  wake(bell, bells.fds[0]);
  EXPECT_EQ(::poll(&entry, 1, 0), 1);
}

TEST(Doorbell, WakeReachesASleeperWhoseWakerDied) {
  testing::Shared<Table> table;
  const auto children = testing::start_forked(1, [&](int) {
    declare_asleep(table->bell[0], false);
    sleep_on(table->bell[0], kForever);
    table->turn.store(1);
  });
  testing::wait_until([&] { return table->bell[0].asleep.load() == 1; });
  table->bell[0].asleep.store(0);  // What a waker leaves that is killed before its futex_wake.
  ring(table->bell[0], -1);
  testing::wait_until([&] {
    wake(table->bell[0], -1);
    return table->turn.load() == 1;
  });
  EXPECT_EQ(testing::wait_for(children[0]), 0);
}

}  // namespace
}  // namespace lockstep::internal
