// Failures between hosts where the caller's streams run the calls: every stream goes on, also beside a call
// of the program that keeps others from the driver, and nothing is sent that a failed step left.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/device/host/host_backend.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/device/communicator/expect_named.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/device_backend.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::Status;
using internal::testing::Enqueued;
using internal::testing::must;
using testing::backend;
using testing::DeviceRank;
using testing::run_on_hosts;
using testing::wait_for_failure;

const char* const kMode = testing::test_run("device_sync");

/// All but the last rank are in the driver when `fail` has come over that, and their calls end all the same.
void expect_end_of_blocking_copies(int world, ErrorCode code, const DeviceCallOptions& options,
                                   void (*fail)(DeviceRank& last)) {
  run_on_hosts(world, kMode, [&](DeviceRank& self) {
    DeviceArena arena(1 << 16, self.device());
    if (self.rank() == self.size() - 1) return fail(self);
    std::vector<float> values(arena.size() / sizeof(float), 1);
    self.all_reduce(arena, values.size(), options);
    must(backend().copy(values.data(), arena.device(), arena.size(), self.stream));
    EXPECT_EQ(internal::HostBackend::hangs(), 0);
    wait_for_failure(self);
    EXPECT_EQ(self.communicator.state(), code) << self.communicator.error_text();
  });
}

TEST(DeviceHostsFailure, EndsACopyThatBlocksInTheDriver) {
  DeviceCallOptions soon;
  soon.timeout = std::chrono::milliseconds(300);
  for (const int world : {2, 4}) {
    // With peers on its host a stream that waits is let pass by another one, which takes the driver.
    if (world > 2 && kMode == std::string_view("stream_sync")) continue;
    expect_end_of_blocking_copies(world, ErrorCode::aborted, {}, [](DeviceRank& last) {
      internal::sleep_for(std::chrono::milliseconds(100));
      last.communicator.abort("enough");
    });
    expect_end_of_blocking_copies(world, ErrorCode::timeout, soon, wait_for_failure);
  }
}

TEST(DeviceHostsFailure, LetsAStreamPassWhoseEndCouldNotBeNoted) {
  run_on_hosts(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    if (self.rank() == 0) {
      self.recorder.before = [](const Enqueued& next) {
        return next.what == "record" ? Status(ErrorCode::system, "a fault of the test") : Status();
      };
      EXPECT_THROW(self.all_reduce(arena, 1000), Error);
    }
    self.stream.synchronize();
    wait_for_failure(self);
  });
}

/// Rank 1 names another place of its window than the other ranks; then `check`.
void on_windows_that_are_not_named_alike(int world, const std::function<void(DeviceRank&)>& check) {
  run_on_hosts(world, kMode, [&](DeviceRank& self) {
    constexpr std::size_t kCount = 50'000;
    DeviceArena arena(1 << 20, self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    std::byte* const at = arena.device() + (self.rank() == 1 ? 4096 : 0);
    self.communicator.all_reduce(at, at, kCount, DataType::f32, ReduceOp::sum, self.stream);
    self.stream.synchronize();
    check(self);
  });
}

/// The other host would take for right what was reduced at wrong places.
TEST(DeviceHostsFailure, SendsNothingOfWindowsThatAreNotNamedAlike) {
  on_windows_that_are_not_named_alike(4, [](DeviceRank& self) {
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
  });
}

/// Rank 2 is on another host than the two that find out, and hears of it with the number of one among all.
TEST(DeviceHostsFailure, NamesThoseWhoseWindowsDifferOnAnotherHost) {
  on_windows_that_are_not_named_alike(3, [](DeviceRank& self) {
    testing::expect_named(self, ErrorCode::mismatch, {0, 1});
  });
}

TEST(DeviceHostsFailure, SaysThatCallsBetweenHostsAreInNoGraph) {
  run_on_hosts(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    must(backend().begin_capture(self.stream));
    const auto [code, text] = testing::error_of([&] { self.all_reduce(arena, 10); });
    must(backend().destroy_graph(must(backend().end_capture(self.stream))));
    EXPECT_EQ(code, ErrorCode::not_supported);
    EXPECT_NE(text.find("make them outside"), std::string::npos) << text;
    self.all_reduce(arena, 10);
    self.synchronize();
  });
}

}  // namespace
}  // namespace lockstep
