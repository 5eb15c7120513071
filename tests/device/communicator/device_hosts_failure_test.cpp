// Failures between hosts where the caller's streams run the calls: every stream goes on, also beside a call
// of the program that keeps others from the driver, nothing is sent that a failed step left, and ranks are
// named by their numbers among all.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "lib/device/host/host_backend.hpp"
#include "tests/device/communicator/device_world.hpp"
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
using internal::testing::wait_until;
using testing::backend;
using testing::DeviceRank;
using testing::run_on_hosts;

const char* const kMode = testing::test_run("device_sync");

void wait_for_failure(DeviceRank& self) {
  wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
}

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

/// Rank 1 is killed when all have found out that they call the same. On its host it has the number of rank 3.
TEST(DeviceHostsFailure, NamesRanksByTheirNumbersAmongAll) {
  testing::use_host_backend(kMode);
  const testing::MeetingPlace place;
  const auto children = internal::testing::start_forked(4, [&](int rank) {
    testing::live_on_host(rank / 2);
    DeviceRank self(place.join(rank, 4, "auto"));
    DeviceArena arena(4096, self.device());
    self.recorder.before = [&](const Enqueued& next) {
      if (rank != 1 || (next.what != "packets" && next.what != "copy" && next.what != "reduce"))
        return Status();
      internal::sleep_for(std::chrono::milliseconds(200));
      static_cast<void>(::kill(::getpid(), SIGKILL));
      return Status();
    };
    self.all_reduce(arena, 1000);
    self.stream.synchronize();
    wait_for_failure(self);
    int culprit = -1;
    try {
      self.communicator.wait();
    } catch (const Error& error) {
      culprit = error.culprit();
    }
    // Who hears of it from a group of some of the ranks has the words alone.
    const std::string text = self.communicator.error_text();
    EXPECT_TRUE(culprit == 1 || culprit == -1) << culprit << ": " << text;
    const bool is_named =
        text.find("rank 1 (") != std::string::npos || text.find("rank 1 of all") != std::string::npos;
    EXPECT_TRUE(is_named) << text;
  });
  for (const std::size_t rank : {0u, 2u, 3u})
    EXPECT_EQ(internal::testing::wait_for(children[rank]), 0) << rank;
  static_cast<void>(internal::testing::wait_for(children[1]));
}

/// The other host would take for right what was reduced at wrong places.
TEST(DeviceHostsFailure, SendsNothingOfWindowsThatAreNotNamedAlike) {
  run_on_hosts(4, kMode, [](DeviceRank& self) {
    constexpr std::size_t kCount = 50'000;
    DeviceArena arena(1 << 20, self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    std::byte* const at = arena.device() + (self.rank() == 1 ? 4096 : 0);
    self.communicator.all_reduce(at, at, kCount, DataType::f32, ReduceOp::sum, self.stream);
    self.stream.synchronize();
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
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
