// A step between hosts as a thread runs it, which waits for its stream itself: two ranks, each on a host of
// its own.
#include "collectives/device/hosts/across_hosts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "collectives/device/patience.hpp"
#include "lib/device/host/host_backend.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/host_of_rank.hpp"
#include "tests/support/must.hpp"
#include "tests/support/recording_backend.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::MeetingPlace;
using testing::Enqueued;
using testing::must;
using testing::RecordingBackend;
using testing::wait_until;

class Side {
 public:
  static constexpr std::size_t kCount = 1000;

  Side(const MeetingPlace& place, int of_rank) : rank(of_rank), host_(place.join(rank, 2, "auto")) {
    CommunicatorCore& all = host_.core();
    across_ = must(AcrossHosts::make(backend, stream, all, must(all.split(rank, rank)), 1 << 16));
    std::fill_n(numbers, kCount, static_cast<float>(rank + 1));
  }
  ~Side() {
    across_->let_pass();
    must(real.synchronize(stream));
    across_.reset();
    must(real.destroy_stream(stream));
    must(real.free_pinned(numbers));
  }

  /// The sum of both, in place.
  Status all_reduce(std::chrono::milliseconds timeout = std::chrono::minutes(5)) {
    CallOptions options;
    options.timeout = timeout;
    CallBuilder call(Collective::all_reduce, host_.core().engine(), options);
    call.elements(DataType::f32, kCount).reduction(ReduceOp::sum);
    RelayWatch watch;
    watch.end = end_after(std::chrono::nanoseconds(timeout).count());
    watch.look = [](const std::vector<int>&) { return Status(); };
    watch.late = [this](const std::vector<int>& awaited) {
      if (awaited.empty()) return kept_from_device();
      return Status(ErrorCode::timeout, "late for " + network().group().who(awaited));
    };
    return across_->run(call.buffers(numbers, numbers).build(), watch);
  }
  /// The group of all ranks that carries what the stream brings.
  Engine& network() { return across_->groups()[1]->engine(); }
  bool is_stream_idle() { return must(real.idle(stream)); }

  const int rank;
  HostBackend real;
  float* const numbers = static_cast<float*>(must(real.allocate_pinned(kCount * sizeof(float))));
  RecordingBackend backend{real};  ///< What the step is given to.
  const DeviceStream stream = must(real.create_stream(Backend::Priority::normal));

 private:
  Communicator host_;
  std::unique_ptr<AcrossHosts> across_;
};

void on_two_hosts(const std::function<void(Side&)>& body) {
  const MeetingPlace place;
  testing::run_forked(2, [&](int rank) {
    lockstep::testing::live_on_host(rank);
    Side side(place, rank);
    body(side);
  });
}

TEST(AcrossHosts, AStepReducesWhatTheStreamsBring) {
  on_two_hosts([](Side& self) {
    must(self.all_reduce());
    EXPECT_TRUE(self.is_stream_idle());
    EXPECT_EQ(std::count(self.numbers, self.numbers + Side::kCount, 3.0f), 1000);
  });
}

/// Nothing of it is on the network where the stream could not be given all of it.
TEST(AcrossHosts, AStepThatADeviceRefusesEndsOnAllHosts) {
  on_two_hosts([](Side& self) {
    if (self.rank == 1) {
      self.backend.before = [](const Enqueued& next) {
        return next.what == "wait" ? Status(ErrorCode::device_failed, "a fault of the test") : Status();
      };
    }
    const Status status = self.all_reduce();
    EXPECT_EQ(status.code(), ErrorCode::device_failed) << status.message();
    EXPECT_NE(status.message().find("a fault of the test"), std::string::npos) << status.message();
    EXPECT_EQ(self.network().state(), ErrorCode::device_failed);
    EXPECT_TRUE(self.is_stream_idle());
  });
}

TEST(AcrossHosts, AStepWhoseDeadlinePassesNamesWhomTheNetworkWaitsFor) {
  on_two_hosts([](Side& self) {
    if (self.rank == 1) return wait_until([&] { return self.network().poll_state() != ErrorCode::ok; });
    self.backend.before = [&](const Enqueued& next) {  // What was given before fills a column.
      return next.what == "wait" ? self.real.synchronize(self.stream) : Status();
    };
    const Status status = self.all_reduce(std::chrono::milliseconds(1));
    EXPECT_EQ(status.code(), ErrorCode::timeout) << status.message();
    EXPECT_NE(status.message().find("late for rank 1 ("), std::string::npos) << status.message();
    EXPECT_TRUE(self.is_stream_idle());
  });
}

TEST(AcrossHosts, AStepWhoseStreamDoesNotComeSaysSo) {
  on_two_hosts([](Side& self) {
    if (self.rank == 1) return wait_until([&] { return self.network().poll_state() != ErrorCode::ok; });
    std::uint32_t word = 0;
    must(self.backend.wait_value(&word, 1, self.stream));
    const Status status = self.all_reduce(std::chrono::milliseconds(1));
    EXPECT_EQ(status.code(), ErrorCode::timeout) << status.message();
    EXPECT_NE(status.message().find("had not run"), std::string::npos) << status.message();
    std::atomic_ref(word).store(1);
    must(self.real.synchronize(self.stream));
  });
}

}  // namespace
}  // namespace lockstep::internal
