// Static graphs, frozen parameters and parameters that join: a DeviceReducer does what the host's Reducer
// does, bit for bit, in forked ranks over the host backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "tests/ddp/forked_twins.hpp"

namespace lockstep {
namespace {

using testing::backend;
using testing::count_of;
using testing::expect_same_error;
using testing::kParameters;
using testing::must;
using testing::on_forked_ranks;
using testing::step;
using testing::thrown_by;
using testing::Twins;

DeviceReducerOptions compressed(DeviceCompression compression) {
  DeviceReducerOptions options;
  options.compression = compression;
  return options;
}

TEST(DeviceStaticGraph, CountsTheMarksOfTheFirstStep) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.static_graph = true;
    Twins twins(host, options);
    const std::size_t marks[kParameters] = {1, 3, 0, 2, 1};  // Number 2 is never reached.
    for (unsigned number = 0; number < 4; ++number) {
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, number);  // What nobody marks must not travel.
        for (std::size_t k = 0; k < marks[i]; ++k) twins.mark(i);
      }
      twins.wait();
      twins.expect_equal("a step of a static graph");
      for (std::size_t i = 0; i < kParameters; ++i) EXPECT_EQ(twins.on_device->used(i), i != 2);
    }
    for (std::size_t i = 0; i < kParameters; ++i)
      for (std::size_t k = 0; k < marks[i]; ++k) twins.mark(i);
    if (host.rank() == 1) {
      EXPECT_NE(std::string(thrown_by([&] { twins.on_device->mark_ready(2, twins.stream); }).what())
                    .find("\"p2\" was not marked in the first step, but in step 5"),
                std::string::npos);
      EXPECT_THROW(twins.on_host->mark_ready(2), Error);
    }
    expect_same_error(twins, "rank 1 marked \"p2\" (2), which it did not in the first step");
  });
}

/// The step that counts marks included.
TEST(DeviceStaticGraph, WhatIsMarkedAsUnusedIsZeroInEveryStep) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.static_graph = options.find_unused = true;
    Twins twins(host, options);
    for (unsigned number = 1; number <= 3; ++number) {
      for (std::size_t i = 0; i < kParameters; ++i) twins.compute(i, number);
      for (const std::size_t i : {0u, 2u, 3u, 4u}) twins.mark(i);
      twins.on_device->mark_unused(1, twins.stream);
      twins.on_host->mark_unused(1);
      twins.wait();
      twins.expect_equal("with a parameter that nobody used");
      EXPECT_EQ(static_cast<const float*>(twins.on_device->gradient(1))[7], 0);
      EXPECT_FALSE(twins.on_device->used(1));
    }
  });
}

/// The last of several marks counts, also when the stream of an earlier one is behind.
TEST(DeviceStaticGraph, WaitsForTheStreamsOfAllMarks) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.static_graph = true;
    Twins twins(host, options);
    const Stream slow = must(backend().create_stream());
    auto* const gate = static_cast<std::uint32_t*>(must(backend().allocate_pinned(sizeof(std::uint32_t))));
    const testing::PinnedFloats late(count_of(4), 3.0f);
    for (std::uint32_t number = 1; number <= 3; ++number) {
      must(backend().wait_value(gate, number, slow));
      must(backend().copy(twins.on_device->gradient(4), late.data(), count_of(4) * sizeof(float), slow));
      twins.on_device->mark_ready(4, slow);
      for (std::size_t i = 0; i < kParameters; ++i) twins.on_device->mark_ready(i, twins.stream);
      twins.on_device->wait(twins.stream);
      EXPECT_FALSE(must(backend().idle(twins.stream)));
      std::atomic_ref(*gate).store(number);
      must(backend().synchronize(twins.stream));
      EXPECT_EQ(static_cast<const float*>(twins.on_device->gradient(4))[count_of(4) - 1], 3.0f);
      must(backend().fill(twins.on_device->gradient(4), 0, count_of(4) * sizeof(float), twins.stream));
      must(backend().synchronize(twins.stream));
    }
    must(backend().destroy_stream(slow));
    must(backend().free_pinned(gate));
  });
}

TEST(DeviceFreeze, LeavesParametersOutAndTheirGradientsZero) {
  for (const auto compression : {DeviceCompression::none, DeviceCompression::bf16, DeviceCompression::i8}) {
    on_forked_ranks(3, [&](Communicator& host) {
      DeviceReducerOptions options;
      options.compression = compression;
      Twins twins(host, options);
      step(twins, 1);
      const std::uint64_t sent = twins.on_device->bytes_on_wire();
      EXPECT_GT(sent, 0u);
      const std::vector<std::vector<std::size_t>> lists = {{4}, {0, 2}, {0, 1, 3}, {}};
      std::vector<void*> places;
      for (std::size_t i = 0; i < kParameters; ++i) places.push_back(twins.on_device->gradient(i));
      unsigned seed = 2;
      for (const auto& list : lists) {
        twins.on_device->freeze(list, twins.stream);
        twins.on_host->freeze(list);
        EXPECT_EQ(twins.on_device->plan(), twins.on_host->plan());
        EXPECT_GE(twins.on_device->bytes_on_wire(), sent);
        must(backend().synchronize(twins.stream));
        for (const std::size_t i : list)
          for (std::size_t k = 0; k < count_of(i); ++k)
            ASSERT_EQ(static_cast<const float*>(twins.on_device->gradient(i))[k], 0.0f);
        for (std::size_t i = 0; i < kParameters; ++i) {
          EXPECT_EQ(twins.on_device->gradient(i), places[i]);
          if (std::find(list.begin(), list.end(), i) == list.end()) twins.compute(i, seed);
          twins.mark(i);  // Those of frozen parameters are ignored.
        }
        ++seed;
        twins.wait();
        twins.expect_equal("with frozen parameters");
        for (const std::size_t i : list) EXPECT_FALSE(twins.on_device->used(i));
      }
    });
  }
}

/// Its view lies between those of others, in their bucket.
TEST(DeviceFreeze, WhatIsWrittenToAFrozenGradientCountsForNothing) {
  constexpr std::size_t kLine = BucketPlan::kAlignment / sizeof(float);
  for (const auto& [check_first, count] : {std::pair(false, kLine), {false, 20}, {true, 20}}) {
    on_forked_ranks(2, [&, check_first = check_first, count = count](Communicator& host) {
      DeviceCommunicator device(host, 0);
      auto* const values = static_cast<float*>(allocate_device(3 * count * sizeof(float), 0));
      std::vector<Parameter> parameters;
      for (std::size_t i = 0; i < 3; ++i)
        parameters.push_back({"p" + std::to_string(i), DataType::f32, {count}, values + i * count, nullptr});
      DeviceReducerOptions options;
      options.check_finite = true;
      options.check_first = check_first;
      options.compression = DeviceCompression::i8;
      std::optional<DeviceReducer> reducer(std::in_place, host, device, parameters, options);
      const Stream stream = must(backend().create_stream());
      reducer->freeze(std::vector<std::size_t>{1}, stream);
      const auto gradient = [&](std::size_t i) { return static_cast<float*>(reducer->gradient(i)); };
      for (std::size_t i = 0; i < 3; ++i) std::fill_n(gradient(i), count, i == 1 ? std::nanf("") : 1.0f);
      for (std::size_t i = 0; i < 3; ++i) reducer->mark_ready(i, stream);
      EXPECT_NO_THROW(reducer->wait(stream));
      reducer->clip_gradients(1e6, stream);
      must(backend().synchronize(stream));
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(gradient(i)[count - 1], i == 1 ? 0 : 1, 1e-6) << i;
      reducer.reset();
      must(backend().destroy_stream(stream));
      free_device(values);
    });
  }
}

/// It takes its block along, and the next step begins with what lies between the gradients.
TEST(DeviceCompression, ANaNIsGoneWithItsStep) {
  on_forked_ranks(2, [](Communicator& host) {
    constexpr std::size_t kCount = 20;  // A gap of alignment lies behind it.
    DeviceCommunicator device(host, 0);
    auto* const values = static_cast<float*>(allocate_device(2 * kCount * sizeof(float), 0));
    std::vector<Parameter> parameters;
    for (std::size_t i = 0; i < 2; ++i)
      parameters.push_back({"p" + std::to_string(i), DataType::f32, {kCount}, values + i * kCount, nullptr});
    std::optional<DeviceReducer> reducer(std::in_place, host, device, parameters,
                                         compressed(DeviceCompression::i8));
    const Stream stream = must(backend().create_stream());
    const auto gradient = [&](std::size_t i) { return static_cast<float*>(reducer->gradient(i)); };
    for (const float value : {std::nanf(""), 1.0f}) {
      for (std::size_t i = 0; i < 2; ++i) std::fill_n(gradient(i), kCount, value);
      for (std::size_t i = 0; i < 2; ++i) reducer->mark_ready(i, stream);
      reducer->wait(stream);
      must(backend().synchronize(stream));
    }
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(gradient(i)[0], 1, 1e-6) << i;
    reducer.reset();
    must(backend().destroy_stream(stream));
    free_device(values);
  });
}

TEST(DeviceFreeze, ListsThatDifferAreNamed) {
  on_forked_ranks(2, [](Communicator& host) {
    Twins twins(host, {});
    const std::size_t list[] = {static_cast<std::size_t>(host.rank())};
    const Error differ = thrown_by([&] { twins.on_device->freeze(list, twins.stream); });
    EXPECT_EQ(differ.code(), ErrorCode::mismatch);
    EXPECT_EQ(differ.culprit(), 1);
    const std::size_t none[] = {99};
    EXPECT_EQ(thrown_by([&] { twins.on_device->freeze(none, twins.stream); }).code(),
              ErrorCode::invalid_argument);
    twins.on_device->mark_ready(0, twins.stream);
    EXPECT_STREQ(thrown_by([&] { twins.on_device->freeze(none, twins.stream); }).what(),
                 "freeze was called in the midst of step 1; call wait() first");
    for (std::size_t i = 1; i < kParameters; ++i) twins.on_device->mark_ready(i, twins.stream);
    twins.on_device->wait(twins.stream);
  });
}

TEST(DeviceAddParameters, CountAsIfTheyHadBeenThere) {
  for (const auto compression :
       {DeviceCompression::none, DeviceCompression::f16, DeviceCompression::f8e4m3}) {
    on_forked_ranks(2, [&](Communicator& host) {
      constexpr std::size_t kAtFirst = 3;
      DeviceReducerOptions options = compressed(compression);
      options.static_graph = true;
      options.undo = true;
      Twins twins(host, options, kAtFirst);
      step(twins, 1, kAtFirst);
      step(twins, 2, kAtFirst);
      twins.expect_equal("before", kAtFirst);
      std::vector<void*> places;
      for (std::size_t i = 0; i < kAtFirst; ++i) places.push_back(twins.on_device->gradient(i));
      for (std::size_t i = kAtFirst; i < kParameters; ++i)
        std::fill_n(twins.memory[i], count_of(i), static_cast<float>(host.rank() + 7));
      twins.on_device->add_parameters(std::span(twins.there).subspan(kAtFirst));
      twins.on_host->add_parameters(std::span(twins.here).subspan(kAtFirst));
      EXPECT_EQ(twins.on_device->plan(), twins.on_host->plan());
      for (std::size_t i = 0; i < kAtFirst; ++i) EXPECT_EQ(twins.on_device->gradient(i), places[i]);
      for (std::size_t i = kAtFirst; i < kParameters; ++i) {
        EXPECT_EQ(twins.memory[i][count_of(i) - 1], 7.0f);  // Rank 0's.
        EXPECT_EQ(static_cast<const float*>(twins.on_device->gradient(i))[0], 0.0f);
      }
      for (unsigned number = 3; number < 6; ++number) {
        step(twins, number);
        twins.expect_equal("with those that joined");
      }
    });
  }
}

TEST(DeviceAddParameters, AreLaidOutAsTheNextStepMarksThem) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    int moved = 0;
    options.gradients_moved = [&] { ++moved; };
    Twins twins(host, options, 3);
    step(twins, 1, 3);
    EXPECT_EQ(moved, 2);  // Here and there.
    twins.on_device->add_parameters(std::span(twins.there).subspan(3));
    twins.on_host->add_parameters(std::span(twins.here).subspan(3));
    step(twins, 2);
    EXPECT_EQ(moved, 4);
    EXPECT_EQ(twins.on_device->plan(), twins.on_host->plan());
    twins.expect_equal("where they have moved");
  });
}

TEST(DeviceAddParameters, ThatDifferAreNamedAndTheReducerIsAsBefore) {
  on_forked_ranks(3, [](Communicator& host) {
    Twins twins(host, {}, 3);
    const auto added = std::span(twins.there).subspan(3, host.rank() == 2 ? 1 : 2);
    const Error error = thrown_by([&] { twins.on_device->add_parameters(added); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_EQ(error.culprit(), 2);
    EXPECT_THROW(twins.on_device->mark_ready(3, twins.stream), Error);
    step(twins, 4, 3);
    twins.expect_equal("after a list that differed", 3);
  });
}

}  // namespace
}  // namespace lockstep
