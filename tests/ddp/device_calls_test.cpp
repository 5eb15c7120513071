// Calls of a DeviceReducer between its steps: refused in the midst of one, and without effect where nothing
// changes. In forked ranks over the host backend.
#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

#include "tests/ddp/forked_twins.hpp"

namespace lockstep {
namespace {

using testing::backend;
using testing::kParameters;
using testing::must;
using testing::on_forked_ranks;
using testing::step;
using testing::thrown_by;
using testing::Twins;

TEST(DeviceCalls, InTheMidstOfAStepAreRefused) {
  on_forked_ranks(2, [](Communicator& host) {
    Twins twins(host, {});
    DeviceReducer& reducer = *twins.on_device;
    twins.compute(0, 1);
    twins.mark(0);
    const std::function<void()> calls[] = {
        [&] { static_cast<void>(reducer.begin_step(1, twins.stream)); },
        [&] { reducer.freeze({}, twins.stream); },
        [&] { reducer.add_parameters({}); },
        [&] { reducer.clip_gradients(1, twins.stream); },
        [&] { const auto pause = reducer.no_sync(); },
    };
    for (const auto& call : calls) {
      const Error error = thrown_by(call);
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(error.what()).find("was called in the midst of step 1"), std::string::npos)
          << error.what();
    }
    for (std::size_t i = 1; i < kParameters; ++i) {
      twins.compute(i, 1);
      twins.mark(i);
    }
    twins.wait();
    twins.expect_equal("after calls that were refused");
  });
}

TEST(DeviceCalls, ThatChangeNothingKeepWhatAStaticGraphHasLearned) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.static_graph = true;
    Twins twins(host, options);
    step(twins, 1);
    twins.on_device->freeze({}, twins.stream);
    twins.on_host->freeze({});
    twins.on_device->add_parameters({});
    twins.on_host->add_parameters({});
    for (std::size_t i = 0; i < kParameters; ++i) twins.mark(i);
    EXPECT_THROW(twins.on_device->mark_ready(0, twins.stream), Error);
    EXPECT_THROW(twins.on_host->mark_ready(0), Error);
    testing::expect_same_error(twins, "marked \"p0\" (0) once too often");
  });
}

/// What was given to it before may still write to the view.
TEST(DeviceCalls, FreezeClearsAGradientInTheOrderOfItsStream) {
  on_forked_ranks(2, [](Communicator& host) {
    Twins twins(host, {});
    testing::GatedStream slow;
    const testing::PinnedFloats late(testing::count_of(4), 3.0f);
    slow.close();
    must(backend().copy(twins.on_device->gradient(4), late.data(), testing::count_of(4) * sizeof(float),
                        slow.get()));
    std::thread opener([&] {  // A change of the plan frees memory, which waits for the device.
      internal::sleep_for(std::chrono::milliseconds(20));
      slow.open();
    });
    twins.on_device->freeze(std::vector<std::size_t>{4}, slow.get());
    opener.join();
    must(backend().synchronize(slow.get()));
    EXPECT_EQ(static_cast<const float*>(twins.on_device->gradient(4))[0], 0.0f);
  });
}

TEST(DeviceCalls, NothingMovesWhereGradientsBecameReadyInTheOrderOfTheBuckets) {
  on_forked_ranks(2, [](Communicator& host) {
    int moved = 0;
    DeviceReducerOptions options;
    options.gradients_moved = [&] { ++moved; };
    Twins twins(host, options);
    const void* const before = twins.on_device->gradient(1);
    for (unsigned number = 0; number < 2; ++number) {
      for (std::size_t i = kParameters; i-- > 0;) {
        twins.compute(i, number);
        twins.mark(i);
      }
      twins.wait();
      twins.expect_equal("in the order of the buckets");
    }
    EXPECT_EQ(moved, 0);
    EXPECT_EQ(twins.on_device->gradient(1), before);
  });
}

TEST(DeviceCalls, AChangeOfThePlanKeepsTheTimesOfTheStepBefore) {
  on_forked_ranks(2, [](Communicator& host) {
    Twins twins(host, {});
    step(twins, 1);
    must(backend().synchronize(twins.stream));
    twins.on_device->freeze(std::vector<std::size_t>{0}, twins.stream);
    EXPECT_EQ(twins.on_device->statistics().step, 1u);
  });
}

/// Its peers start no buckets in a step that is bad.
TEST(DeviceCalls, ARankWithoutDataStartsNoBucketsBeforeTheVerdictThatComesFirst) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.check_first = true;
    Twins twins(host, options);
    const bool has_data = host.rank() == 0;
    for (const bool good : {false, true}) {
      EXPECT_TRUE(twins.on_device->begin_step(has_data ? 1 : 0, twins.stream));
      EXPECT_TRUE(twins.on_host->begin_step(has_data ? 1 : 0));
      for (std::size_t i = good ? 0 : 1; i < kParameters && has_data; ++i) {
        twins.compute(i, 1);
        twins.mark(i);
      }
      if (good) {
        twins.wait();
        twins.expect_equal("after a step that was bad");
      } else {
        testing::expect_same_error(twins, "rank 0 did not mark 1 of 5 gradients: \"p0\" (0)");
      }
    }
  });
}

}  // namespace
}  // namespace lockstep
