// Whom the deadline of a call between hosts names, in every mode: who keeps the others waiting, as far as
// that is known beside the rank whose deadline passes, and not one that only waits itself.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <regex>
#include <string>
#include <string_view>

#include "tests/device/communicator/device_world.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::Status;
using internal::testing::Enqueued;
using internal::testing::Shared;
using internal::testing::wait_until;
using testing::DeviceRank;
using testing::run_on_hosts;
using testing::wait_for_failure;

const char* const kMode = testing::test_run("host_sync");

/// Rank 3 of four makes no call, and rank 2 has the deadline. All say `words`.
void expect_rank_3_is_named(int hosts, std::chrono::milliseconds timeout, const char* words) {
  Shared<std::atomic<int>> called;
  const auto body = [&](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    DeviceCallOptions options;
    if (self.rank() == 2) {
      options.timeout = timeout;
      wait_until([&] { return called->load() == 2; });
    }
    if (self.rank() != 3) self.all_reduce(arena, 100, options);
    if (self.rank() < 2) called->fetch_add(1);
    wait_for_failure(self);
    self.stream.synchronize();
    const std::string text = self.communicator.error_text();
    EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << text;
    EXPECT_NE(text.find(words), std::string::npos) << text;
  };
  run_on_hosts(4, kMode, body, "auto", hosts);
}

/// Rank 2 is beside rank 3, though where all compare their calls it waits for another, that waits itself.
TEST(DeviceHostsDeadline, NamesWhoHasNotMadeTheCall) {
  expect_rank_3_is_named(2, std::chrono::milliseconds(300), "rank 3 (");
}

/// Alone on its host rank 2 is kept by rank 0, which says when it is asked that it waits for rank 3 itself.
TEST(DeviceHostsDeadline, AloneOnItsHostNamesWhoHasNotMadeTheCall) {
  expect_rank_3_is_named(4, std::chrono::seconds(3), "it waits for rank 3 (");
}

/// Rank 0 waits on its host, for one that waits for the other host, where rank 3 goes no further than to its
/// first copy. That one tells whom it waits for every 10 ms.
TEST(DeviceHostsDeadline, InAHostNamesWhomAnotherWaitsFor) {
  Shared<std::atomic<int>> called;
  run_on_hosts(4, kMode, [&](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    DeviceCallOptions options;
    if (self.rank() == 0) {
      options.timeout = std::chrono::seconds(2);
      wait_until([&] { return called->load() == 2; });
    }
    std::atomic<bool> was_there{false};
    self.recorder.before = [&](const Enqueued& next) {
      if (self.rank() == 3 && next.what == "copy" && !was_there.exchange(true)) wait_for_failure(self);
      return Status();
    };
    self.communicator.broadcast(arena.device(), arena.device(), 1000, DataType::f32, 3, self.stream, options);
    if (self.rank() == 1 || self.rank() == 2) called->fetch_add(1);
    wait_for_failure(self);
    self.stream.synchronize();
    const std::string text = self.communicator.error_text();
    EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << text;
    EXPECT_TRUE(std::regex_search(text, std::regex("rank 1 \\([^)]*\\) waits for rank 3 \\("))) << text;
  });
}

/// Of an all_reduce the network has done its part on all ranks, and rank 3 enqueues no more of what comes
/// inside its host, where rank 2 waits for it. In host_sync that is the engine's, which knows whom it waits
/// for.
TEST(DeviceHostsDeadline, NamesWhoGoesNoFurtherOnceTheNetworkIsThrough) {
  if (std::string_view(kMode) == "host_sync") return;
  run_on_hosts(4, kMode, [&](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    DeviceCallOptions options;
    if (self.rank() == 2) options.timeout = std::chrono::seconds(2);
    std::atomic<bool> is_back{false};
    self.recorder.before = [&](const Enqueued& next) {
      const bool is_step = next.what == "copy" || next.what == "packets";
      if (self.rank() == 3 && is_step && is_back) wait_for_failure(self);
      const bool comes_back = next.what == "copy" && next.destinations.front() >= arena.device() &&
                              next.destinations.front() < arena.device() + arena.size();
      if (comes_back) is_back = true;
      return Status();
    };
    self.all_reduce(arena, 1000, options);
    wait_for_failure(self);
    self.stream.synchronize();
    const std::string text = self.communicator.error_text();
    EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << text;
    EXPECT_TRUE(std::regex_search(text, std::regex("rank 3 \\("))) << text;
    EXPECT_FALSE(std::regex_search(text, std::regex("waits? for rank [01]"))) << text;
  });
}

}  // namespace
}  // namespace lockstep
