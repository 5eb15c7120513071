// How a benchmark's ranks are started: whatever moment a signal comes, it ends them all.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <streambuf>

#include "bench/launch.hpp"

namespace lockstep::bench {
namespace {

/// Standard output is flushed before each fork: here a signal comes then, before the third.
class SignalBetweenForks : public std::streambuf {
 private:
  int sync() override {
    if (++flushes_ == 3) raise(SIGTERM);
    return 0;
  }
  int flushes_ = 0;
};

TEST(BenchLaunch, ASignalWhileRanksStartEndsThem) {
  const pid_t launcher = fork();
  if (launcher == 0) {
    SignalBetweenForks output;
    std::cout.rdbuf(&output);
    _exit(run_in_processes(
        5,
        [](int) {
          alarm(30);  // Were the signal lost.
          pause();
          return 0;
        },
        [] {}));
  }
  int status = 0;
  ASSERT_EQ(waitpid(launcher, &status, 0), launcher);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
}

TEST(BenchLaunch, TheFirstFailureIsTheStatus) {
  int failures = 0;
  const auto body = [](int rank) { return rank == 2 ? 7 : 0; };
  EXPECT_EQ(run_in_processes(4, body, [&] { ++failures; }), 7);
  EXPECT_EQ(failures, 1);
  EXPECT_EQ(run_in_processes(
                4, [](int) { return 0; }, [&] { ++failures; }),
            0);
}

// As the kernel ends one where memory is short. The others only see that one is missing.
TEST(BenchLaunch, ARankThatASignalEndsIsNamed) {
  const auto said = [](int number) {
    ::testing::internal::CaptureStderr();
    const auto body = [number](int rank) { return rank == 1 ? raise(number) : 0; };
    EXPECT_EQ(run_in_processes(3, body, [] {}), 128 + number);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_NE(said(SIGKILL).find("rank 1 was ended by signal 9"), std::string::npos);
  EXPECT_EQ(said(SIGINT), "");
}

}  // namespace
}  // namespace lockstep::bench
