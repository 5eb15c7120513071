// DeviceClock: what a step's times are between, and which steps are measured. Over the host backend.
#include "ddp/device/device_clock.hpp"

#include <gtest/gtest.h>

#include "tests/ddp/forked_twins.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::backend;
using lockstep::testing::GatedStream;
using lockstep::testing::must;
using lockstep::testing::on_forked_ranks;

constexpr auto kHeldBack = std::chrono::milliseconds(20);

/// Steps of one rank with one bucket, on a stream that can be held back.
struct Steps {
  explicit Steps(std::uint64_t every = 1) : clock(backend(), 0, plan, 0, every) { clock.use_plan(); }

  /// The device is held back between the first mark and the second, if the step is to be marked.
  void enqueue(bool marks) {
    clock.begin(stream.get());
    if (marks) {
      clock.mark(stream.get());
      must(backend().synchronize(stream.get()));
      stream.close();
      clock.mark(stream.get());
    }
    end();
  }
  void end() {
    clock.wait_entered(stream.get());
    clock.bucket_started(0, stream.get());
    clock.bucket_done(0, stream.get());
    clock.end(++number, {0}, stream.get());
  }
  const StepStatistics& pass() {
    sleep_for(kHeldBack);
    stream.open();
    must(backend().synchronize(stream.get()));
    clock.collect();
    return clock.latest();
  }

  const DeviceScope scope{backend(), 0};
  const BucketPlan plan{{{DataType::f32, {{0, 0, 0, 16}}, 16}}};
  DeviceClock clock;
  GatedStream stream;
  std::uint64_t number = 0;
};

TEST(DeviceClock, BackwardIsFromTheFirstMarkOfTheStepToTheWait) {
  on_forked_ranks(1, [](Communicator&) {
    Steps steps;
    for (const bool marks : {true, true, false, true, false, false}) {
      steps.enqueue(marks);
      const StepStatistics& s = steps.pass();
      EXPECT_EQ(s.step, steps.number);
      if (marks) {
        EXPECT_GE(s.backward, kHeldBack) << s.step;
      } else {
        EXPECT_EQ(s.backward.count(), 0) << s.step;
      }
    }
  });
}

TEST(DeviceClock, TheLastStepThatTheDeviceHasPassedCounts) {
  on_forked_ranks(1, [](Communicator&) {
    Steps steps;
    steps.enqueue(true);
    steps.pass();
    steps.enqueue(true);  // These two are passed together.
    steps.clock.begin(steps.stream.get());
    steps.end();
    EXPECT_EQ(steps.clock.latest().step, 1u);
    EXPECT_EQ(steps.pass().step, 3u);
    EXPECT_EQ(steps.clock.latest().backward.count(), 0);
  });
}

TEST(DeviceClock, OneStepOfSeveralIsMeasuredWhereEventsCostTurns) {
  on_forked_ranks(1, [](Communicator&) {
    Steps steps(3);
    for (const std::uint64_t latest : {1, 1, 1, 4, 4, 4, 7}) {
      steps.enqueue(true);
      EXPECT_EQ(steps.pass().step, latest);
    }
  });
}

TEST(DeviceClock, AStepIsNotMeasuredWhileTheDeviceIsTwoBehind) {
  on_forked_ranks(1, [](Communicator&) {
    Steps steps;
    steps.enqueue(true);
    for (int ahead = 0; ahead < 2; ++ahead) {
      steps.clock.begin(steps.stream.get());
      steps.end();
    }
    EXPECT_EQ(steps.clock.latest().step, 0u);
    EXPECT_EQ(steps.pass().step, 2u);
    steps.enqueue(true);
    EXPECT_EQ(steps.pass().step, 4u);
  });
}

}  // namespace
}  // namespace lockstep::internal
