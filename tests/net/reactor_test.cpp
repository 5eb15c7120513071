// The reactor on real descriptors and threads: tasks, watchers and timers; reactor_progress_test has the
// rest.
#include "lib/net/reactor.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <new>
#include <thread>

#include "tests/net/reactor_fixture.hpp"

namespace lockstep::internal {
namespace {

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

void close_all_but_standard_streams() {
  for (int fd = STDERR_FILENO + 1; fd < 256; ++fd) close(fd);
}

void put_files_of_its_own_there() {
  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = STDERR_FILENO + 1; fd < 256; ++fd) {
    if (fd != file && fcntl(fd, F_GETFD) >= 0) dup2(file, fd);
  }
}

// Nobody could wake its thread, and who waits for what was posted would wait for ever.
TEST(ReactorDeathTest, SaysThatTheProgramClosedItsDescriptors) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        flush();
        close_all_but_standard_streams();
        for (;;) flush();  // Until one finds the thread asleep.
      },
      "the program has closed the library's descriptors");
}

// Writing there succeeds, wakes nobody, and puts bytes into a file of the program's.
TEST(ReactorDeathTest, SaysSoWhereTheProgramHasFilesUnderTheirNumbers) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        flush();
        alarm(20);  // Ends it where it would wait for ever.
        put_files_of_its_own_there();
        for (;;) flush();  // Until one finds the thread asleep.
      },
      "the program has closed the library's descriptors");
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
