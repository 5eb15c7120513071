// What marks of a DeviceReducer bring with them: streams, also under no_sync, and marks that count for
// nothing. In forked ranks over the host backend.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/ddp/forked_twins.hpp"

namespace lockstep {
namespace {

using testing::backend;
using testing::count_of;
using testing::GatedStream;
using testing::kParameters;
using testing::must;
using testing::on_forked_ranks;
using testing::step;
using testing::thrown_by;
using testing::Twins;

DeviceReducerOptions with_unused() {
  DeviceReducerOptions options;
  options.find_unused = true;
  return options;
}

/// Backward of a micro-batch: parameter 4 on two streams, the second of which is behind.
void compute_late(Twins& twins, GatedStream& slow, const testing::PinnedFloats& late) {
  slow.close();
  must(backend().copy(twins.on_device->gradient(4), late.data(), count_of(4) * sizeof(float), slow.get()));
  twins.on_device->mark_ready(4, twins.stream);
  twins.on_device->mark_ready(4, slow.get());
}

/// Who does not wait for what comes late has time to show that.
constexpr auto kTimeToFail = std::chrono::milliseconds(20);

/// The average of what comes late.
void expect_late(Twins& twins, GatedStream& slow) {
  internal::sleep_for(kTimeToFail);
  slow.open();
  must(backend().synchronize(slow.get()));
  must(backend().synchronize(twins.stream));
  EXPECT_EQ(static_cast<const float*>(twins.on_device->gradient(4))[count_of(4) - 1], 1.5f);
}

TEST(DeviceMarks, UnderNoSyncBringTheirStreams) {
  on_forked_ranks(2, [](Communicator& host) {
    Twins twins(host, with_unused());
    GatedStream slow;
    const testing::PinnedFloats late(count_of(4), static_cast<float>(host.rank() + 1));
    {
      const auto pause = twins.on_device->no_sync();
      compute_late(twins, slow, late);
    }
    for (std::size_t i = 0; i < 4; ++i) twins.on_device->mark_ready(i, twins.stream);
    twins.on_device->wait(twins.stream);
    expect_late(twins, slow);
  });
}

/// The step that is repeated does not mark it.
TEST(DeviceMarks, UnderNoSyncBringTheirStreamsThoughTheStepFails) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options = with_unused();
    options.check_first = true;  // Nothing that fails has been enqueued.
    Twins twins(host, options);
    GatedStream slow;
    const testing::PinnedFloats late(count_of(4), static_cast<float>(host.rank() + 1));
    {
      const auto pause = twins.on_device->no_sync();
      compute_late(twins, slow, late);
    }
    twins.on_device->mark_ready(0, twins.stream);
    thrown_by([&] { twins.on_device->mark_ready(0, twins.stream); });
    thrown_by([&] { twins.on_device->wait(twins.stream); });
    twins.on_device->mark_ready(0, twins.stream);
    twins.on_device->wait(twins.stream);
    expect_late(twins, slow);
  });
}

/// It may still be written to there, and counts as zero afterwards.
TEST(DeviceMarks, ThatLackLeaveAGradientToTheStreamOfTheWait) {
  on_forked_ranks(2, [](Communicator& host) {
    Twins twins(host, with_unused());
    GatedStream slow;
    const testing::PinnedFloats late(count_of(4), 3.0f);
    slow.close();
    must(backend().copy(twins.on_device->gradient(4), late.data(), count_of(4) * sizeof(float), slow.get()));
    for (std::size_t i = 0; i < 4; ++i) twins.on_device->mark_ready(i, twins.stream);
    twins.on_device->wait(slow.get());
    internal::sleep_for(kTimeToFail);
    slow.open();
    must(backend().synchronize(slow.get()));
    EXPECT_EQ(static_cast<const float*>(twins.on_device->gradient(4))[count_of(4) - 1], 0.0f);
  });
}

TEST(DeviceMarks, NeedTheirStreamForOneStepOnly) {
  on_forked_ranks(2, [](Communicator& host) {
    Twins twins(host, {});
    Stream streams[3] = {};  // All from the start: none gets the handle of one that is gone.
    for (Stream& stream : streams) stream = must(backend().create_stream());
    for (unsigned number = 0; number < 3; ++number) {
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, number);
        twins.on_device->mark_ready(i, streams[number]);
        twins.on_host->mark_ready(i);
      }
      twins.wait();
      twins.expect_equal("with a stream of the step's own");
      must(backend().destroy_stream(streams[number]));
    }
  });
}

TEST(DeviceMarks, AsUnusedOfFrozenParametersAndUnderNoSyncCountForNothing) {
  on_forked_ranks(2, [](Communicator& host) {
    Twins twins(host, with_unused());
    const std::size_t frozen[] = {1};
    twins.on_device->freeze(frozen, twins.stream);
    twins.on_host->freeze(frozen);
    for (unsigned number = 0; number < 2; ++number) {
      const auto mark_unused = [&](std::size_t i) {
        twins.on_device->mark_unused(i, twins.stream);
        twins.on_host->mark_unused(i);
      };
      {
        const auto pause = twins.on_device->no_sync();
        const auto same = twins.on_host->no_sync();
        mark_unused(0);
        mark_unused(1);
      }
      mark_unused(1);
      step(twins, number);
      twins.expect_equal("after marks that count for nothing");
      EXPECT_TRUE(twins.on_device->used(0));
    }
  });
}

TEST(DeviceMarks, UnderNoSyncCountForOneStep) {
  on_forked_ranks(2, [](Communicator& host) {
    Twins twins(host, with_unused());
    for (const bool accumulates : {true, false}) {
      if (accumulates) {
        const auto pause = twins.on_device->no_sync();
        const auto same = twins.on_host->no_sync();
        twins.compute(1, 3);
        twins.mark(1);
      }
      twins.compute(0, 4);
      twins.mark(0);
      twins.wait();
      twins.expect_equal("with a gradient of a micro-batch before, and without");
      EXPECT_EQ(twins.on_device->used(1), accumulates);
    }
  });
}

TEST(DeviceMarks, AreMissedByAWaitThatNeedsSamplesFirst) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.weighted = true;
    Twins twins(host, options);
    const Error error = thrown_by([&] { twins.on_device->wait(twins.stream); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("need begin_step(samples)"), std::string::npos) << error.what();
    EXPECT_STREQ(error.what(), thrown_by([&] { twins.on_host->wait(); }).what());
  });
}

/// A data loader that was forked in the midst of a step, say.
TEST(DeviceMarks, InAForkedChildAreRefused) {
  on_forked_ranks(1, [](Communicator& host) {
    Twins twins(host, {});
    for (const bool in_step : {false, true}) {
      if (in_step) twins.mark(0);
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        ::alarm(60);
        const auto is_refused = [](const std::function<void()>& call) {
          const Error error = thrown_by(call);
          return error.code() == ErrorCode::not_supported &&
                 std::string(error.what()).find("forked from the one that made the DeviceReducer") !=
                     std::string::npos;
        };
        const bool marks = is_refused([&] { twins.on_device->mark_ready(1, twins.stream); });
        const bool waits = is_refused([&] { twins.on_device->wait(twins.stream); });
        twins.on_device.reset();
        ::_exit(marks && waits ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    for (std::size_t i = 1; i < kParameters; ++i) twins.mark(i);
    twins.wait();
  });
}

}  // namespace
}  // namespace lockstep
