// What a DeviceReducer promises about bad steps, about replicas, times and lives: as the host's Reducer, in
// forked ranks over the host backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include "ddp/device/device_undo.hpp"
#include "ddp/device/gradient_kernels.hpp"
#include "lib/device/host/host_backend.hpp"
#include "tests/ddp/forked_twins.hpp"
#include "tests/support/recording_backend.hpp"

namespace lockstep {
namespace {

using testing::backend;
using testing::count_of;
using testing::kParameters;
using testing::must;
using testing::on_forked_ranks;
using testing::step;
using testing::thrown_by;
using testing::Twins;

using Gradients = std::vector<std::vector<float>>;

Gradients gradients_of(Twins& twins) {
  must(backend().synchronize(twins.stream));
  Gradients all;
  for (std::size_t i = 0; i < kParameters; ++i) {
    const auto* data = static_cast<const float*>(twins.on_device->gradient(i));
    all.emplace_back(data, data + count_of(i));
  }
  return all;
}

bool same_bits(const Gradients& a, const Gradients& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  return true;
}

/// It lies on the reducer's device, of which a thread that drops the reducer may know nothing.
TEST(DeviceUndo, IsFreedOnItsDeviceByAnyThread) {
  constexpr int kDevice = 3;
  internal::HostBackend host;
  internal::testing::RecordingBackend backend(host);
  std::optional<internal::DeviceUndo> undo(std::in_place, backend, kDevice);
  BucketPlan plan;
  plan.buckets.push_back({DataType::f32, {{0, 0, 0, 100}}, 100});
  undo->use_plan(plan);
  int freed_on = -1;
  backend.before_free = [&] { freed_on = must(backend.selected()); };
  std::thread([&] { undo.reset(); }).join();
  EXPECT_EQ(freed_on, kDevice);
}

/// A step that starts no bucket leaves nothing behind, and none leaves anything to the next one.
TEST(DeviceUndo, PutsBackTheBucketsThatHaveStartedAsTheyWereLast) {
  internal::HostBackend host;
  internal::testing::RecordingBackend backend(host);
  internal::DeviceUndo undo(backend, 0);
  BucketPlan plan;
  for (std::size_t i = 0; i < 2; ++i) plan.buckets.push_back({DataType::u8, {{i, 0, 0, 100}}, 100});
  undo.use_plan(plan);
  auto* const data = static_cast<std::byte*>(must(backend.allocate(0, 200, internal::MemoryKind::plain)));
  const internal::DeviceStream stream = must(backend.create_stream(internal::Backend::Priority::normal));
  for (const unsigned char step : {1, 2}) {
    must(backend.fill(data, step, 200, stream));
    for (std::size_t i = 0; i < 2; ++i) undo.keep(i, data + 100 * i, 100, stream);
  }
  must(backend.fill(data, 3, 200, stream));
  static_cast<void>(backend.take());
  undo.restore(0, stream);
  EXPECT_TRUE(backend.take().empty());
  undo.restore(1, stream);
  EXPECT_EQ(backend.take().size(), 1u);
  must(backend.synchronize(stream));
  EXPECT_EQ(data[99], std::byte{2});
  EXPECT_EQ(data[100], std::byte{3});
  must(backend.destroy_stream(stream));
  must(backend.free(data));
}

TEST(DeviceUndo, HasRoomForWhatJoins) {
  internal::HostBackend host;
  internal::DeviceUndo undo(host, 0);
  BucketPlan plan;
  for (std::size_t i = 0; i < 3; ++i) {
    plan.buckets.push_back({DataType::u8, {{i, 0, 0, 100}}, 100});
    undo.use_plan(plan);
    EXPECT_GE(undo.bytes(), 100 * (i + 1));
  }
}

struct Way {
  bool check_first, weighted;
  DeviceCompression compression;
};

class DeviceUntouched : public ::testing::TestWithParam<Way> {};

/// Every bad step leaves the gradients as backward left them, and they make a good step afterwards.
TEST_P(DeviceUntouched, AreTheGradientsOfAStepThatFails) {
  const Way way = GetParam();
  on_forked_ranks(3, [&](Communicator& host) {
    DeviceReducerOptions options;
    options.check_first = way.check_first;
    options.undo = !way.check_first;
    options.weighted = way.weighted;
    options.check_finite = true;
    options.compression = way.compression;
    Twins twins(host, options);
    EXPECT_EQ(twins.on_device->undo_bytes() > 0, options.undo);
    const auto begin = [&] {
      if (!way.weighted) return;
      const auto samples = static_cast<std::uint64_t>(host.rank() + 1);
      EXPECT_TRUE(twins.on_device->begin_step(samples, twins.stream));
      EXPECT_TRUE(twins.on_host->begin_step(samples));
    };
    const bool culprit = host.rank() == 1;
    const auto expect_failure = [&](bool twice, std::size_t without, const char* text) {
      const Gradients before = gradients_of(twins);
      begin();
      for (std::size_t i = 0; i < kParameters; ++i) {
        if (!culprit || i != without) twins.mark(i);
      }
      if (culprit && twice) {
        EXPECT_THROW(twins.on_device->mark_ready(3, twins.stream), Error);
        EXPECT_THROW(twins.on_host->mark_ready(3), Error);
      }
      testing::expect_same_error(twins, text);
      EXPECT_TRUE(same_bits(before, gradients_of(twins))) << text;
    };
    for (std::size_t i = 0; i < kParameters; ++i) twins.compute(i, 9);
    expect_failure(false, 2, "rank 1 did not mark 1 of 5 gradients: \"p2\" (2)");
    expect_failure(true, kParameters, "rank 1 marked \"p3\" (3) once too often");
    const float good = static_cast<float*>(twins.on_host->gradient(4))[99];
    const auto put = [&](float value) {
      if (!culprit) return;
      static_cast<float*>(twins.on_host->gradient(4))[99] = value;
      twins.put(4);
    };
    put(std::numeric_limits<float>::infinity());
    expect_failure(false, kParameters, "rank 1 has an infinity or a NaN in the gradient of \"p4\" (4)");
    put(good);
    begin();
    for (std::size_t i = 0; i < kParameters; ++i) twins.mark(i);
    twins.wait();
    twins.expect_equal("the good step afterwards");
  });
}
INSTANTIATE_TEST_SUITE_P(All, DeviceUntouched,
                         ::testing::Values(Way{false, false, DeviceCompression::none},
                                           Way{false, true, DeviceCompression::none},
                                           Way{false, false, DeviceCompression::f8e4m3},
                                           Way{true, false, DeviceCompression::none},
                                           Way{true, true, DeviceCompression::bf16}));

/// An infinity that no mark stands for is no trouble, and hides none behind it.
TEST(DeviceCheckFirst, LooksAtGradientsThatTakePartOnly) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.check_first = options.check_finite = options.find_unused = true;
    Twins twins(host, options);
    const float infinity = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < kParameters; ++i) twins.compute(i, 1);
    static_cast<float*>(twins.on_host->gradient(1))[0] = infinity;
    twins.put(1);
    for (const std::size_t i : {0u, 2u, 3u, 4u}) twins.mark(i);
    twins.wait();
    twins.expect_equal("without the unmarked infinity");
    for (const std::size_t bad : {1u, 2u}) {
      static_cast<float*>(twins.on_host->gradient(bad))[5] = infinity;
      twins.put(bad);
    }
    for (const std::size_t i : {0u, 2u, 3u, 4u}) twins.mark(i);
    testing::expect_same_error(twins, "rank 0 has an infinity or a NaN in the gradient of \"p2\" (2)");
  });
}

// What backward leaves in the view of a frozen gradient lies between those it looks at, and is marked
// nowhere.
TEST(DeviceCheckFirst, LooksAtNothingBetweenGradientsThatTakePart) {
  constexpr std::size_t kCount = 64;
  internal::HostBackend host;
  internal::GradientKernels kernels(host, 0, 1, 3);
  auto* const data =
      static_cast<float*>(must(host.allocate(0, 3 * kCount * sizeof(float), internal::MemoryKind::plain)));
  std::fill_n(data, 3 * kCount, 1.0f);
  data[kCount] = std::numeric_limits<float>::infinity();
  BucketPlan::Bucket bucket{DataType::f32, {}, 3 * kCount};
  for (std::size_t i = 0; i < 3; ++i) bucket.parts.push_back({i, i * kCount, 0, kCount});
  const internal::DeviceStream stream = must(host.create_stream(internal::Backend::Priority::normal));
  for (const std::uint8_t middle : {0, 1}) {
    const std::vector<std::uint8_t> has_gradient{1, middle, 1};
    kernels.look(0, bucket, reinterpret_cast<std::byte*>(data), has_gradient, stream);
    EXPECT_EQ(kernels.found(stream).front(), middle != 0 ? kCount : internal::GradientKernels::kNone);
  }
  must(host.destroy_stream(stream));
  must(host.free(data));
}

TEST(DeviceCheckFirst, WaitsForTheGradientsThatItLooksAt) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.check_first = options.check_finite = true;
    Twins twins(host, options);
    testing::GatedStream slow;
    const testing::PinnedFloats late(count_of(2), std::numeric_limits<float>::infinity());
    slow.close();
    must(backend().copy(twins.on_device->gradient(2), late.data(), count_of(2) * sizeof(float), slow.get()));
    for (std::size_t i = 0; i < kParameters; ++i)
      twins.on_device->mark_ready(i, i == 2 ? slow.get() : twins.stream);
    std::thread opener([&] {
      internal::sleep_for(std::chrono::milliseconds(20));  // Who does not wait has time to show it.
      slow.open();
    });
    EXPECT_THROW(twins.on_device->wait(twins.stream), NonFiniteGradient);
    opener.join();
  });
}

TEST(DeviceCheckFirst, WaitsForTheStreamOfWaitToo) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.check_first = options.check_finite = true;
    Twins twins(host, options);
    testing::GatedStream slow;
    slow.close();
    for (std::size_t i = 0; i < kParameters; ++i) twins.on_device->mark_ready(i, twins.stream);
    std::atomic<bool> opened{false};
    std::thread opener([&] {
      internal::sleep_for(std::chrono::milliseconds(20));
      opened = true;
      slow.open();
    });
    twins.on_device->wait(slow.get());
    EXPECT_TRUE(opened);
    opener.join();
  });
}

TEST(DeviceCheckFirst, LooksForNoInfinitiesUnlessAsked) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.check_first = true;
    Twins twins(host, options);
    for (std::size_t i = 0; i < kParameters; ++i) twins.compute(i, 1);
    static_cast<float*>(twins.on_host->gradient(1))[0] = std::numeric_limits<float>::infinity();
    twins.put(1);
    for (std::size_t i = 0; i < kParameters; ++i) twins.mark(i);
    twins.wait();
    twins.expect_equal("with an infinity");
  });
}

TEST(DeviceReplicas, ThatDifferAreNamedInTheStepThatCompares) {
  on_forked_ranks(3, [](Communicator& host) {
    DeviceReducerOptions options;
    options.check_replicas_every = 2;
    Twins twins(host, options);
    for (unsigned number = 1; number <= 3; ++number) step(twins, number);
    if (host.rank() == 2) {  // Equal numbers in another place.
      twins.memory[3][10] = twins.values[3][10] = 2;
    } else {
      twins.memory[3][11] = twins.values[3][11] = 2;
    }
    for (std::size_t i = 0; i < kParameters; ++i) twins.mark(i);
    testing::expect_same_error(
        twins,
        "the replicas differ: parameter 3, \"p3\" f32 [2400], on rank 2 is not what the "
        "other ranks have");
    for (std::size_t i = 0; i < kParameters; ++i) twins.mark(i);
    testing::expect_same_error(twins, "the replicas differ");  // The step has not ended: it compares again.
    for (const std::size_t k : {10u, 11u}) twins.memory[3][k] = twins.values[3][k] = 1;
    step(twins, 5);
    EXPECT_EQ(twins.on_device->steps(), 4u);
  });
}

/// A gate holds the device back for a while that the statistics have to show, and the host goes on.
TEST(DeviceStatistics, AreOfTheDevicesClockAndNeverWaited) {
  on_forked_ranks(2, [](Communicator& host) {
    constexpr auto kHeldBack = std::chrono::milliseconds(30);
    Twins twins(host, {});
    EXPECT_EQ(twins.on_device->report(), "no step has ended yet");
    step(twins, 1);  // The first begins on the device when that comes to it.
    must(backend().synchronize(twins.stream));
    auto* const gate = static_cast<std::uint32_t*>(must(backend().allocate_pinned(sizeof(std::uint32_t))));
    for (std::uint32_t number = 2; number <= 4; ++number) {
      must(backend().wait_value(gate, number, twins.stream));  // Backward takes its time on the device.
      for (std::size_t i = 0; i < kParameters; ++i) twins.on_device->mark_ready(i, twins.stream);
      twins.on_device->wait(twins.stream);
      EXPECT_EQ(twins.on_device->steps(), number);
      EXPECT_EQ(twins.on_device->statistics().step, number - 1);  // The device has not passed this one.
      internal::sleep_for(kHeldBack);
      std::atomic_ref(*gate).store(number);
      must(backend().synchronize(twins.stream));
      const StepStatistics s = twins.on_device->statistics();
      EXPECT_EQ(s.step, number);
      EXPECT_GE(s.duration, kHeldBack);
      EXPECT_GT(s.backward.count(), 0);
      EXPECT_LE(s.communication + s.backward, s.duration);
      EXPECT_LE(s.exposed, s.communication);
      EXPECT_GT(s.waited.count(), 0);
      std::size_t bytes = 0;
      for (std::size_t i = 0; i < kParameters; ++i) bytes += count_of(i) * sizeof(float);
      EXPECT_EQ(s.bytes, bytes);
      ASSERT_EQ(s.timeline.size(), twins.on_device->plan().buckets.size());
      for (std::size_t b = 0; b < s.timeline.size(); ++b) {
        EXPECT_GE(s.timeline[b].started, kHeldBack);
        EXPECT_GE(s.timeline[b].done, s.timeline[b].started);
        EXPECT_LE(s.timeline[b].done, s.duration);
      }
      EXPECT_EQ(twins.on_device->report().find("step " + std::to_string(number) + ": "), 0u);
    }
    must(backend().free_pinned(gate));
  });
}

/// The handle that the reducer was made with may move or go first; a step that is left behind is named.
TEST(DeviceReducerLife, KeepsTheGroupAlive) {
  on_forked_ranks(2, [](Communicator& host) {
    std::vector<float*> memory;
    std::optional<DeviceReducer> reducer;
    {
      DeviceCommunicator device(host, 0);
      memory.push_back(static_cast<float*>(allocate_device(1000 * sizeof(float), 0)));
      const Parameter parameter{"w", DataType::f32, {1000}, memory[0], nullptr};
      reducer.emplace(host, device, std::span(&parameter, 1));
      const DeviceCommunicator moved = std::move(device);
    }
    const Stream stream = must(backend().create_stream());
    for (int number = 0; number < 2; ++number) {
      must(backend().fill(reducer->gradient(0), 0, 1000 * sizeof(float), stream));
      reducer->mark_ready(0, stream);
      reducer->wait(stream);
    }
    must(backend().synchronize(stream));
    must(backend().destroy_stream(stream));
    reducer.reset();
    free_device(memory[0]);
  });
}

TEST(DeviceReducerLife, AStepThatIsLeftBehindIsNamed) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceCommunicator device(host, 0);
    auto* const memory = static_cast<float*>(allocate_device(1000 * sizeof(float), 0));
    // One bucket, which is never full: nothing of the step is on its way when it is left.
    const Parameter parameters[] = {{"w", DataType::f32, {500}, memory, nullptr},
                                    {"b", DataType::f32, {500}, memory + 500, nullptr}};
    const Stream stream = must(backend().create_stream());
    {
      DeviceReducer reducer(host, device, parameters);
      host.barrier();
      if (host.rank() == 0) {
        reducer.mark_ready(0, stream);
        EXPECT_THROW(reducer.mark_ready(0, stream), Error);
      }
    }
    EXPECT_THROW(
        {
          device.barrier(stream);
          device.wait();
        },
        Error);
    EXPECT_NE(
        device.error_text().find("rank 0 destroyed its DeviceReducer in the midst of step 1, in which it "
                                 "marked \"w\" (0) once too often"),
        std::string::npos)
        << device.error_text();
    must(backend().destroy_stream(stream));
    free_device(memory);
  });
}

}  // namespace
}  // namespace lockstep
