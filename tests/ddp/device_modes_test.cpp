// The modes of a DeviceReducer give what those of the host's Reducer give, bit for bit, over the host
// backend.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/ddp/device_twins.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep {
namespace {

using internal::testing::must;
using testing::backend;
using testing::count_of;
using testing::error_of;
using testing::kParameters;
using testing::on_ranks;
using testing::Twins;

/// Full buckets travel while backward goes on.
TEST(DeviceModes, BucketsStartWithTheirLastMark) {
  on_ranks(2, "shm", [](Communicator& host) {
    Twins twins(host, {});
    EXPECT_GE(twins.on_device->plan().buckets.size(), 4u);
    for (std::size_t i = kParameters; i-- > 0;) {
      twins.compute(i, 1);
      twins.mark(i);
    }
    const std::uint64_t sent = twins.on_device->bytes_on_wire();
    EXPECT_GT(sent, 0u);
    twins.wait();
    EXPECT_EQ(twins.on_device->bytes_on_wire(), sent);
    twins.expect_equal("after buckets that started in backward");
  });
}

/// Of a gradient with parts in several buckets too.
TEST(DeviceModes, AGroupThatFailsInBackwardIsReportedByWait) {
  on_ranks(2, "shm", [](Communicator& host) {
    constexpr std::size_t kCount = 10'000;
    DeviceCommunicator device(host, 0);
    auto* const values = static_cast<float*>(allocate_device(kCount * sizeof(float), 0));
    const Parameter large{"large", DataType::f32, {kCount}, values, nullptr};
    DeviceReducerOptions options;
    options.bucket_bytes = options.first_bucket_bytes = 8 << 10;
    const Stream stream = must(backend().create_stream());
    {
      DeviceReducer reducer(host, device, std::span(&large, 1), options);
      EXPECT_GE(reducer.plan().buckets.size(), 4u);
      host.barrier();
      device.abort("enough");
      EXPECT_NO_THROW(reducer.mark_ready(0, stream));
      const auto [code, text] = error_of([&] { reducer.wait(stream); });
      EXPECT_EQ(code, ErrorCode::aborted);
      EXPECT_EQ(text.rfind("gradients of step 1: ", 0), 0u) << text;
      EXPECT_NE(text.find("enough"), std::string::npos) << text;
    }
    must(backend().destroy_stream(stream));
    free_device(values);
  });
}

TEST(DeviceModes, NoSyncKeepsGradientsHereUntilTheLastMicroBatch) {
  on_ranks(2, "shm", [](Communicator& host) {
    Twins twins(host, {});
    for (unsigned step = 0; step < 2; ++step) {
      {
        const auto pause = twins.on_device->no_sync();
        const auto same = twins.on_host->no_sync();
        for (std::size_t i = 0; i < kParameters; ++i) {
          twins.compute(i, step);
          twins.mark(i);
        }
        twins.wait();
      }
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, step + 10, true);
        twins.mark(i);
      }
      twins.wait();
      twins.expect_equal("after the last micro-batch");
    }
  });
}

TEST(DeviceModes, NoSyncIsRememberedWhenTheStepIsRepeated) {
  for (const bool check_first : {false, true}) {
    on_ranks(2, "shm", [&](Communicator& host) {
      DeviceReducerOptions options;
      options.find_unused = options.check_finite = true;
      options.check_first = check_first;
      Twins twins(host, options);
      {
        const auto pause = twins.on_device->no_sync();
        const auto same = twins.on_host->no_sync();
        twins.compute(1, 1);
        twins.mark(1);
      }
      for (const bool good : {false, true}) {
        twins.compute(0, 2);
        if (!good && host.rank() == 1) {
          static_cast<float*>(twins.on_host->gradient(0))[3] = std::numeric_limits<float>::infinity();
          twins.put(0);
        }
        twins.mark(0);
        if (good) {
          twins.wait();
        } else {
          error_of([&] { twins.on_device->wait(twins.stream); });
          error_of([&] { twins.on_host->wait(); });
        }
      }
      twins.expect_equal("after the step was repeated");
      EXPECT_TRUE(twins.on_device->used(1));
    });
  }
}

TEST(DeviceModes, AGradientThatOneMarkBringsIsThereWhateverTheLastOneSays) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceReducerOptions options;
    options.static_graph = options.find_unused = true;
    Twins twins(host, options);
    for (unsigned step = 0; step < 3; ++step) {
      twins.compute(0, step);
      twins.mark(0);
      twins.on_device->mark_unused(0, twins.stream);
      twins.on_host->mark_unused(0);
      twins.wait();
      twins.expect_equal("after two marks");
      EXPECT_TRUE(twins.on_device->used(0)) << step;
    }
  });
}

/// Marks all gradients in an order that is not that of backward.
void run_step(Twins& twins, unsigned step) {
  for (const std::size_t i :
       {std::size_t{2}, std::size_t{0}, std::size_t{4}, std::size_t{1}, std::size_t{3}}) {
    twins.compute(i, step);
    twins.mark(i);
  }
  twins.wait();
}

TEST(DeviceModes, BucketsFollowTheOrderOfTheFirstStepThatIsGood) {
  for (const auto& [undo, static_graph] :
       {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
    on_ranks(2, "shm", [undo = undo, static_graph = static_graph](Communicator& host) {
      int moved = 0;
      DeviceReducerOptions options;
      options.undo = undo;
      options.static_graph = static_graph;
      options.gradients_moved = [&] { ++moved; };
      Twins twins(host, options);
      const BucketPlan first = twins.on_device->plan();
      if (static_graph) run_step(twins, 9);  // It only counts marks.
      EXPECT_EQ(twins.on_device->plan(), first);
      run_step(twins, 0);
      EXPECT_EQ(moved, 2);  // Here and there.
      EXPECT_NE(twins.on_device->plan(), first);
      for (unsigned step = 1; step < 4; ++step) {
        EXPECT_EQ(twins.on_device->plan(), twins.on_host->plan());
        twins.expect_equal("after a step");  // The first time: what has moved.
        run_step(twins, step);
      }
      EXPECT_EQ(moved, 2);
      EXPECT_EQ(twins.on_device->plan().buckets.front().parts.front().parameter, 2u);
    });
  }
}

TEST(DeviceModes, ARebuildKeepsWhatAStaticGraphHasLearned) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceReducerOptions options;
    options.static_graph = true;
    options.gradients_moved = [] {};
    Twins twins(host, options);
    const BucketPlan first = twins.on_device->plan();
    for (unsigned step = 1; step <= 2; ++step) run_step(twins, step);
    EXPECT_NE(twins.on_device->plan(), first);
    twins.mark(1);
    EXPECT_THROW(twins.on_device->mark_ready(1, twins.stream), Error);
    EXPECT_THROW(twins.on_host->mark_ready(1), Error);
    EXPECT_THROW(twins.on_device->wait(twins.stream), Error);
    EXPECT_THROW(twins.on_host->wait(), Error);
  });
}

TEST(DeviceModes, ARankWithoutDataUntilTheRebuildLearnsItsGraphLater) {
  on_ranks(2, "shm", [](Communicator& host) {
    int moved = 0;
    DeviceReducerOptions options;
    options.static_graph = true;
    options.gradients_moved = [&] { ++moved; };
    Twins twins(host, options);
    for (unsigned step = 1; step <= 5; ++step) {
      const bool has_data = step > 2 || host.rank() == 0;
      EXPECT_EQ(twins.on_device->begin_step(has_data ? 1 : 0, twins.stream),
                twins.on_host->begin_step(has_data ? 1 : 0));
      for (const std::size_t i :
           {std::size_t{2}, std::size_t{0}, std::size_t{4}, std::size_t{1}, std::size_t{1}, std::size_t{3}}) {
        if (!has_data) continue;
        twins.compute(i, step);
        twins.mark(i);  // Parameter 1 twice.
      }
      twins.wait();
      twins.expect_equal("after a step");
    }
    EXPECT_EQ(moved, 2);
  });
}

TEST(DeviceModes, NothingMovesWhereOneRankIsNotToldOfIt) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceReducerOptions options;
    if (host.rank() == 0) options.gradients_moved = [] { ADD_FAILURE() << "moved"; };
    DeviceCommunicator device(host, 0);
    std::vector<Parameter> parameters;
    std::vector<void*> values;
    for (std::size_t i = 0; i < kParameters; ++i) {
      values.push_back(allocate_device(count_of(i) * sizeof(float), 0));
      parameters.push_back({"p" + std::to_string(i), DataType::f32, {count_of(i)}, values[i], nullptr});
    }
    {
      DeviceReducer reducer(host, device, parameters, options);
      const BucketPlan first = reducer.plan();
      const Stream stream = must(backend().create_stream());
      for (int step = 0; step < 2; ++step) {
        for (std::size_t i = 0; i < kParameters; ++i) reducer.mark_ready(i, stream);
        reducer.wait(stream);
        EXPECT_EQ(reducer.plan(), first);
      }
      must(backend().synchronize(stream));
      must(backend().destroy_stream(stream));
    }
    for (void* const value : values) free_device(value);
    device.finalize();
  });
}

TEST(DeviceModes, UnusedGradientsCountAsZero) {
  on_ranks(3, "shm", [](Communicator& host) {
    DeviceReducerOptions options;
    options.find_unused = true;
    Twins twins(host, options);
    for (unsigned step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, step);  // Of those that are not marked nothing may be left.
        if (i == 1) continue;
        if ((i + step + static_cast<unsigned>(host.rank())) % 3 != 0) {
          twins.mark(i);
        } else if (step == 2) {
          twins.on_device->mark_unused(i, twins.stream);
          twins.on_host->mark_unused(i);
        }
      }
      twins.wait();
      twins.expect_equal("a step with unused gradients");
      for (std::size_t i = 0; i < kParameters; ++i)
        EXPECT_EQ(twins.on_device->used(i), twins.on_host->used(i)) << i;
      EXPECT_FALSE(twins.on_device->used(1));
    }
  });
}

TEST(DeviceModes, WeightsFollowTheSamplesAndRanksWithoutDataGoOn) {
  on_ranks(3, "shm", [](Communicator& host) {
    DeviceReducerOptions options;
    options.weighted = true;
    Twins twins(host, options);
    const std::uint64_t samples[][3] = {{4, 4, 4}, {8, 2, 5}, {3, 0, 1}, {0, 0, 7}};
    EXPECT_EQ(error_of([&] { twins.on_device->mark_ready(0, twins.stream); }).first,
              ErrorCode::invalid_argument);
    for (const auto& of_step : samples) {
      const std::uint64_t mine = of_step[host.rank()];
      ASSERT_TRUE(twins.on_device->begin_step(mine, twins.stream));
      ASSERT_TRUE(twins.on_host->begin_step(mine));
      for (std::size_t i = 0; i < kParameters && mine > 0; ++i) {
        twins.compute(i, 5);
        twins.mark(i);
      }
      twins.wait();
      twins.expect_equal("weighted");
    }
    EXPECT_FALSE(twins.on_device->begin_step(0, twins.stream));
    EXPECT_FALSE(twins.on_host->begin_step(0));
  });
}

TEST(DeviceModes, WhatIsNotFiniteIsNamedAndStaysOutOfTheSums) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceReducerOptions options;
    options.check_finite = true;
    Twins twins(host, options);
    for (unsigned step = 0; step < 2 * kParameters; ++step) {
      const std::size_t bad = step % 2 == 1 ? step / 2 : kParameters;
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, step);
        if (i == bad && host.rank() == 1) {
          static_cast<float*>(twins.on_host->gradient(i))[0] = std::numeric_limits<float>::infinity();
          twins.put(i);
        }
        twins.mark(i);
      }
      if (bad == kParameters) {
        twins.wait();
        twins.expect_equal("a finite step");
        continue;
      }
      const auto parameter_of = [](const auto& wait) {
        try {
          wait();
        } catch (const NonFiniteGradient& error) {
          EXPECT_EQ(error.culprit(), 1) << error.what();
          return error.parameter();
        }
        return kParameters;
      };
      EXPECT_EQ(parameter_of([&] { twins.on_device->wait(twins.stream); }), bad);
      EXPECT_EQ(parameter_of([&] { twins.on_host->wait(); }), bad);
      must(backend().synchronize(twins.stream));
      const auto* const sums = static_cast<const float*>(twins.on_device->gradient(bad));
      for (std::size_t k = 0; k < count_of(bad); ++k) ASSERT_TRUE(std::isfinite(sums[k]));
    }
  });
}

TEST(DeviceModes, ClippingScalesToTheGlobalNorm) {
  on_ranks(2, "shm", [](Communicator& host) {
    Twins twins(host, {});
    auto* const norm = static_cast<double*>(must(backend().allocate_pinned(sizeof(double))));
    for (const double most : {1e6, 0.5}) {
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, 3);
        twins.mark(i);
      }
      twins.wait();
      twins.on_device->clip_gradients(most, twins.stream, norm);
      must(backend().synchronize(twins.stream));
      const double expected = twins.on_host->clip_gradients(most);
      EXPECT_NEAR(*norm, expected, 1e-9 * expected);
      for (std::size_t i = 0; i < kParameters; ++i) {
        const auto* const device = static_cast<const float*>(twins.on_device->gradient(i));
        const auto* const there = static_cast<const float*>(twins.on_host->gradient(i));
        for (std::size_t k = 0; k < count_of(i); ++k)
          ASSERT_NEAR(device[k], there[k], 1e-6 * std::abs(there[k])) << most;
      }
      double all = 0, least = *norm;  // Bits are equal on all ranks.
      host.all_reduce(norm, &all, 1, DataType::f64, ReduceOp::max);
      host.all_reduce(norm, &least, 1, DataType::f64, ReduceOp::min);
      EXPECT_EQ(all, least);
    }
    EXPECT_EQ(error_of([&] { twins.on_device->clip_gradients(0, twins.stream); }).first,
              ErrorCode::invalid_argument);
    must(backend().free_pinned(norm));
  });
}

}  // namespace
}  // namespace lockstep
