// Who is named between hosts: whatever ends a communicator, and whichever of its groups a rank hears of it
// by, the culprit has the number that it has among all.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/device/device_groups.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::DeviceGroups;
using internal::Engine;
using internal::Status;
using internal::testing::Enqueued;
using internal::testing::wait_until;
using testing::DeviceRank;

const char* const kMode = testing::test_run("host_sync");

/// What this rank hears, by all ways, names one of `culprits`.
void expect_named(DeviceRank& self, ErrorCode code, const std::vector<int>& culprits) {
  wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
  try {
    self.communicator.wait();
    ADD_FAILURE() << "waited without an error";
  } catch (const Error& error) {
    const std::string text = error.what(), who = "rank " + std::to_string(error.culprit());
    EXPECT_EQ(error.code(), code) << text;
    EXPECT_EQ(std::count(culprits.begin(), culprits.end(), error.culprit()), 1) << who << ": " << text;
    EXPECT_TRUE(text.find(who + " (") != text.npos || text.find(who + " of all") != text.npos) << text;
  }
}

/// Rank 1 comes to its end by `fail` before its first copy or kernel, when all have found out that they call
/// the same. Its number on its host is that of rank 3 on the other; rank 2 is with it in no group but that of
/// all.
void expect_rank_1_named(ErrorCode code, const std::function<Status(DeviceRank&)>& fail) {
  testing::use_host_backend(kMode);
  const testing::MeetingPlace place;
  const auto children = internal::testing::start_forked(4, [&](int rank) {
    testing::live_on_host(rank / 2);
    DeviceRank self(place.join(rank, 4, "auto"));
    DeviceArena arena(4096, self.device());
    self.recorder.before = [&](const Enqueued& next) {
      const bool is_step = next.what == "packets" || next.what == "copy" || next.what == "reduce";
      return rank == 1 && is_step ? fail(self) : Status();
    };
    try {
      self.all_reduce(arena, 1000);
    } catch (const Error&) {
      EXPECT_EQ(rank, 1);
    }
    self.stream.synchronize();
    if (rank != 1) expect_named(self, code, {1});
  });
  for (const std::size_t rank : {0u, 2u, 3u})
    EXPECT_EQ(internal::testing::wait_for(children[rank]), 0) << rank;
  static_cast<void>(internal::testing::wait_for(children[1]));
}

TEST(DeviceCulprits, AreThoseThatDie) {
  expect_rank_1_named(ErrorCode::peer_lost, [](DeviceRank&) {
    internal::sleep_for(std::chrono::milliseconds(200));
    static_cast<void>(::kill(::getpid(), SIGKILL));
    return Status();
  });
}

TEST(DeviceCulprits, AreThoseThatAbort) {
  expect_rank_1_named(ErrorCode::aborted, [](DeviceRank& self) {
    self.communicator.abort("enough");
    return Status();
  });
}

TEST(DeviceCulprits, AreThoseWhoseDeviceFails) {
  expect_rank_1_named(ErrorCode::device_failed,
                      [](DeviceRank&) { return Status(ErrorCode::device_failed, "a fault of the test"); });
}

/// Ranks 0 and 1 find out on their host that they differ; rank 2 is on another, and hears of it.
TEST(DeviceCulprits, AreThoseThatDifferOnAnotherHost) {
  if (kMode == std::string_view("host_sync")) GTEST_SKIP() << "asks for the place of buffers in every call";
  testing::use_host_backend(kMode);
  const testing::MeetingPlace place;
  internal::testing::run_forked(3, [&](int rank) {
    testing::live_on_host(rank / 2);
    DeviceRank self(place.join(rank, 3, "auto"));
    constexpr std::size_t kCount = 50'000;
    DeviceArena arena(1 << 20, self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    std::byte* const at = arena.device() + (rank == 1 ? 4096 : 0);
    self.communicator.all_reduce(at, at, kCount, DataType::f32, ReduceOp::sum, self.stream);
    self.stream.synchronize();
    expect_named(self, ErrorCode::mismatch, {0, 1});
  });
}

/// The groups of a rank on the first or second of two hosts with two ranks each.
class Groups {
 public:
  explicit Groups(Communicator& all) : near_(*all.split(all.rank() / 2, all.rank())) {
    groups_.control = groups_.collectives = all.core().shared_from_this();
    groups_.near = near_.core().shared_from_this();
    groups_.of_hosts = {groups_.near.get()};
  }
  const DeviceGroups* operator->() const { return &groups_; }

 private:
  Communicator near_;
  DeviceGroups groups_;
};

TEST(DeviceCulprits, AreToldToEachGroupByItsNumbers) {
  testing::on_ranks(4, "shm", [](Communicator& all) {
    const Groups groups(all);
    const int partner = all.rank() ^ 1;
    if (all.rank() % 2 == 0) groups->revoke(Status(ErrorCode::timeout, "it is late", partner));
    Engine& near = groups->near->engine();
    wait_until([&] { return near.poll_state() != ErrorCode::ok; });
    EXPECT_EQ(near.reason().culprit(), 1) << near.reason().message();
    EXPECT_EQ(near.reason().message(), "it is late");
  });
}

/// The group of one host ends first, because of a rank of the other.
TEST(DeviceCulprits, AreKnownToWhoHearsByAGroupThatTheyAreNotIn) {
  testing::on_ranks(4, "shm", [](Communicator& all) {
    const Groups groups(all);
    Engine& near = groups->near->engine();
    if (all.rank() == 0) {
      near.request_revoke(Status(ErrorCode::timeout, "late"));
      internal::sleep_for(std::chrono::milliseconds(100));  // Rank 1 knows of the one alone by then.
      groups->control->engine().request_revoke(Status(ErrorCode::timeout, "rank 2 is late", 2));
    }
    if (all.rank() == 1) {
      wait_until([&] { return near.poll_state() != ErrorCode::ok; });
      EXPECT_EQ(groups->ended().culprit(), 2) << groups->ended().message();
    }
    wait_until([&] { return groups->control->engine().poll_state() != ErrorCode::ok; });
  });
}

}  // namespace
}  // namespace lockstep
