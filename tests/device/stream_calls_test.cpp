// What the ranks of a host tell each other of calls that their streams run, and what a deadline makes of it:
// ranks 0 and 1 of four, the others on another host.
#include "collectives/device/stream_calls.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "tests/engine/made_up_group.hpp"

namespace lockstep::internal {
namespace {

constexpr Nanos kNow = 1'000'000'000'000;

class StreamCallsTest : public ::testing::Test {
 protected:
  Engine& engine(std::size_t rank) { return near_[rank].core().engine(); }
  std::string who(int rank) { return engine(0).who(rank); }

  /// Rank `rank` makes the call.
  void call(std::size_t rank, bool between_hosts = true) {
    DeviceTask& task = tasks_[rank];
    task.timeout = 300'000'000;
    task.call.emplace(movement(Collective::broadcast, 10, DataType::f32), engine(rank), CallOptions());
    task.watched = std::make_unique<WatchedCall>();
    task.noted = calls_[rank].note(task.call->call());
    if (between_hosts) task.watched->hosts.emplace();
  }
  void come(std::size_t rank, bool between_hosts = true) {
    call(rank, between_hosts);
    calls_[rank].tell_enqueued(tasks_[rank]);
    calls_[rank].tell_looked(kNow);
    calls_[rank].tell_reached(tasks_[rank]);
  }
  /// What rank 0 says when its deadline has passed.
  void expect_late(const std::string& words, int awaited = -1, Nanos now = kNow) {
    const Status late = calls_[0].late(tasks_[0], awaited, now);
    EXPECT_EQ(late.code(), ErrorCode::timeout);
    const std::string& text = late.message();
    EXPECT_EQ(text.substr(text.find("passed") + 6), words) << text;
  }

  std::vector<Communicator> near_ = Communicator::local_group(2, "shm");
  const EngineGroup all_ = testing::made_up_group(0, 4, "several");
  const DeviceWindows windows_{};
  std::array<StreamCalls, 2> calls_{StreamCalls(engine(0), all_, windows_),
                                    StreamCalls(engine(1), all_, windows_)};
  std::array<DeviceTask, 2> tasks_;
};

TEST_F(StreamCallsTest, ADeadlineNamesWhoHasNotMadeTheCall) {
  come(0);
  expect_late("; " + who(1) + " has not made it");
}

TEST_F(StreamCallsTest, ADeadlineNamesWhoseStreamHasNotCome) {
  come(0);
  call(1);
  expect_late("; " + who(1) + " has made it, but its stream has not come to it");
}

TEST_F(StreamCallsTest, ADeadlineNamesWhomAKernelWaitedFor) {
  come(0, false);
  come(1, false);
  expect_late("; it waited for " + who(1), 1);
}

TEST_F(StreamCallsTest, ADeadlineNamesWhomThisRankWaitsForOnOtherHosts) {
  come(0);
  come(1);
  calls_[1].tell_carried(tasks_[1]);
  calls_[0].tell_awaited({3, 2});
  expect_late("; it waits for " + all_.who(3) + ", " + all_.who(2));
}

/// The one beside it is late for that, and not by itself.
TEST_F(StreamCallsTest, ADeadlineNamesWhomTheRankBesideWaitsForOnOtherHosts) {
  come(0);
  come(1);
  calls_[0].tell_carried(tasks_[0]);
  calls_[1].tell_awaited({3});
  expect_late("; " + who(1) + " waits for " + all_.who(3));
  expect_late("; it waited for " + who(1) + "; " + who(1) + " waits for " + all_.who(3), 1);
}

TEST_F(StreamCallsTest, ADeadlineNamesWhoHasNotDoneItsPartBetweenHosts) {
  come(0);
  come(1);
  calls_[0].tell_carried(tasks_[0]);
  const std::string words = "; " + who(1) + " has come to it, but has not done its part between the hosts";
  expect_late(words);
  calls_[1].tell_awaited({1000});  // What another process wrote may be anything.
  expect_late(words);
}

/// Of a process that is stopped the last words are not those that count.
TEST_F(StreamCallsTest, ADeadlineNamesWhoTellsNothingAnyMore) {
  come(0);
  come(1);
  calls_[0].tell_awaited({1});
  calls_[1].tell_awaited({3});
  const std::string own = "; it waits for " + all_.who(1);
  expect_late(own + "; " + who(1) + " waits for " + all_.who(3), -1, kNow + 400'000'000);
  const std::string silent =
      "; " + who(1) + " has come to it, but tells nothing for 700 ms: it may be stopped";
  expect_late(silent + own, -1, kNow + 700'000'000);
  calls_[0].tell_carried(tasks_[0]);
  calls_[1].tell_carried(tasks_[1]);
  expect_late(silent, -1, kNow + 700'000'000);
  calls_[1].tell_looked(kNow + 700'000'000);
  expect_late("; " + who(1) + " has not come to its end either", -1, kNow + 700'000'000);
}

TEST_F(StreamCallsTest, ADeadlineNamesWhoHasYetToEnqueueIt) {
  come(0);
  call(1);
  calls_[1].tell_reached(tasks_[1]);
  for (const std::size_t rank : {0u, 1u}) calls_[rank].tell_carried(tasks_[rank]);
  expect_late("; " + who(1) + " has come to it, but has yet to enqueue some of it");
}

TEST_F(StreamCallsTest, ADeadlineNamesWhoseStreamsHaveNotPassed) {
  for (const bool between_hosts : {true, false}) {
    for (const std::size_t rank : {0u, 1u}) {
      come(rank, between_hosts);
      calls_[rank].tell_carried(tasks_[rank]);
    }
    expect_late("; " + who(1) + " has not come to its end either");
    calls_[1].tell_passed(tasks_[1]);
    const std::string own = "; it waits for nobody but " + who(0) + " itself";
    expect_late(own, -1, kNow + 700'000'000);
  }
}

}  // namespace
}  // namespace lockstep::internal
