// Threads that take no signals, threads side by side, and what happens where the system gives no more.
#include "lib/base/threads.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <climits>
#include <stdexcept>

#include "lockstep/communicator.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/thrown_by.hpp"

namespace {
std::atomic<int> g_threads_left{INT_MAX};
}

// In place of the system's, which a test cannot run dry: root has no limit of processes.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) {
  static const auto create = reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (g_threads_left.fetch_sub(1) <= 0) return EAGAIN;
  return create(thread, attributes, body, argument);
}

namespace lockstep::internal {
namespace {

/// While it lives, the system starts `n` more threads.
struct ThreadsLeft {
  explicit ThreadsLeft(int n) { g_threads_left = n; }
  ~ThreadsLeft() { g_threads_left = INT_MAX; }
};

template <typename Action>
void expect_shortage(Action action) {
  const Error error = lockstep::testing::thrown_by(action);
  EXPECT_EQ(error.code(), ErrorCode::system);
  for (const char* limit : {"ulimit -u", "ulimit -v"})
    EXPECT_NE(std::string(error.what()).find(limit), std::string::npos) << error.what();
}

bool takes_interrupts() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, SIGINT) == 0;
}

TEST(StartThread, LeavesSignalsToTheProgram) {
  bool taken = true;
  start_thread([&] { taken = takes_interrupts(); }).join();
  EXPECT_FALSE(taken);
  EXPECT_TRUE(takes_interrupts());
}

TEST(OnThreads, RunsThemAllAndThrowsWhatTheFirstThrew) {
  std::atomic<int> sum{0};
  on_threads(5, [&](std::size_t i) { sum += static_cast<int>(i); });
  EXPECT_EQ(sum, 10);
  EXPECT_THROW(on_threads(3,
                          [](std::size_t i) {
                            if (i == 1) throw std::out_of_range("1");
                          }),
               std::out_of_range);
}

// The sanitizers have a pthread_create of their own.
class Shortage : public ::testing::Test {
  void SetUp() override {
    if (testing::kSanitized) GTEST_SKIP();
  }
};

TEST_F(Shortage, IsAnErrorThatNamesTheLimit) {
  const ThreadsLeft none(0);
  expect_shortage([] { start_thread([] {}).join(); });
  EXPECT_TRUE(takes_interrupts());
}

TEST_F(Shortage, LetsNoneWaitForThoseThatNeverStart) {
  std::atomic<int> ran{0};
  const ThreadsLeft two(2);
  expect_shortage([&] { on_threads(4, [&](std::size_t) { ++ran; }); });
  EXPECT_EQ(ran, 0);
}

TEST_F(Shortage, EndsAGroupOfOneProcessBeforeItBegins) {
  for (int left = 0; left < 4; ++left) {
    const ThreadsLeft few(left);
    expect_shortage([] { Communicator::local_group(4, "shm"); });
  }
  auto group = Communicator::local_group(4, "shm");
  EXPECT_EQ(group.size(), 4u);
}

}  // namespace
}  // namespace lockstep::internal
