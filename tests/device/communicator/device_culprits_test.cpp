// Who is named between hosts: whatever ends a communicator, and whichever of its groups a rank hears of it
// by, the culprit has the number that it has among all.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "collectives/device/device_groups.hpp"
#include "collectives/device/patience.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/device/communicator/expect_named.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::CommunicatorCore;
using internal::DeviceArena;
using internal::DeviceGroups;
using internal::Engine;
using internal::Status;
using internal::testing::Enqueued;
using internal::testing::must;
using internal::testing::wait_until;
using testing::DeviceRank;
using testing::expect_named;

const char* const kMode = testing::test_run("host_sync");

/// How many ranks have made the call, and how many have come to the first copy or kernel of it.
struct Progress {
  std::atomic<int> called{0}, begun{0};
};

/// Rank 1 comes to its end by `fail` before its first copy or kernel, when all others have come to theirs.
/// Its number on its host is that of rank 3 on the other; rank 2 is with it in no group but that of all.
void expect_rank_1_named(ErrorCode code, const std::function<Status(DeviceRank&)>& fail) {
  testing::use_host_backend(kMode);
  const testing::MeetingPlace place;
  internal::testing::Shared<Progress> others;
  const auto children = internal::testing::start_forked(4, [&](int rank) {
    testing::live_on_host(rank / 2);
    DeviceRank self(place.join(rank, 4, "auto"));
    DeviceArena arena(4096, self.device());
    bool has_begun = false;
    self.recorder.before = [&](const Enqueued& next) {
      const bool is_step = next.what == "packets" || next.what == "copy" || next.what == "reduce";
      if (!is_step || std::exchange(has_begun, true)) return Status();
      if (rank != 1) {
        others->begun.fetch_add(1);
        return Status();
      }
      wait_until([&] { return others->called.load() == 3 && others->begun.load() == 3; });
      return fail(self);
    };
    try {
      self.all_reduce(arena, 1000);
    } catch (const Error&) {
      EXPECT_EQ(rank, 1);
    }
    if (rank != 1) others->called.fetch_add(1);
    self.stream.synchronize();
    if (rank != 1) expect_named(self, code, {1});
  });
  for (const std::size_t rank : {0u, 2u, 3u})
    EXPECT_EQ(internal::testing::wait_for(children[rank]), 0) << rank;
  static_cast<void>(internal::testing::wait_for(children[1]));
}

TEST(DeviceCulprits, AreThoseThatDie) {
  expect_rank_1_named(ErrorCode::peer_lost, [](DeviceRank&) {
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

/// In words, too, by a group of some that has other numbers.
TEST(DeviceCulprits, AreCalledByTheirNumbersAmongAll) {
  testing::on_ranks(4, "shm", [](Communicator& all) {
    const int first = all.rank() / 2 * 2;  // Of those of its host.
    const auto near = must(all.core().split(first, all.rank(), CommunicatorCore::Numbers::of_whole));
    EXPECT_EQ(near->engine().who(0), all.core().engine().who(first));
    EXPECT_EQ(near->engine().who(1), all.core().engine().who(first + 1));
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
  std::atomic<bool> knows_of_one{false};
  testing::on_ranks(4, "shm", [&](Communicator& all) {
    const Groups groups(all);
    Engine& near = groups->near->engine();
    if (all.rank() == 0) {
      near.request_revoke(Status(ErrorCode::timeout, "late"));
      wait_until([&] { return knows_of_one.load(); });
      internal::sleep_for(std::chrono::milliseconds(20));  // For whoever would not wait.
      groups->control->engine().request_revoke(Status(ErrorCode::timeout, "rank 2 is late", 2));
    }
    if (all.rank() == 1) {
      wait_until([&] { return near.poll_state() != ErrorCode::ok; });
      knows_of_one = true;
      const internal::Nanos begun = internal::real_env().now();
      const Status ended = groups->ended();
      const bool waited_in_vain = internal::real_env().now() - begun >= internal::kVerdict;
      EXPECT_TRUE(ended.culprit() == 2 || waited_in_vain) << ended.culprit() << ": " << ended.message();
    }
    wait_until([&] { return groups->control->engine().poll_state() != ErrorCode::ok; });
  });
}

}  // namespace
}  // namespace lockstep
