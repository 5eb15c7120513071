// f16 and bf16 gradients that are added up in f32: rounded once, whatever the ranks and their weights.
#include <gtest/gtest.h>

#include "lib/base/float16.hpp"
#include "tests/ddp/numbers.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::BF16;
using internal::F16;
using testing::on_ranks;
using testing::thrown_by;

TEST(HalfInF32, RoundsOnce) {
  for (const char* transports : {"shm", "tcp"}) {
    on_ranks(5, transports, [](Communicator& communicator) {
      // 1 + 4 x 2^-9: added one by one in bf16 (8 bits of precision) the small ones are lost.
      constexpr std::size_t kCount = 1000;
      std::vector<std::uint16_t> value(kCount), gradient(kCount);
      std::vector<float> single(3), single_gradient(3, 1.0f);
      const std::vector<Parameter> list{
          {"half", DataType::bf16, {kCount}, value.data(), gradient.data()},
          {"single", DataType::f32, {3}, single.data(), single_gradient.data()}};
      ReducerOptions options;
      options.gradients_as_views = false;
      options.average = false;
      options.half_in_f32 = true;
      Reducer reducer(communicator, list, options);
      const float mine = communicator.rank() == 0 ? 1.0f : 0x1p-9f;
      std::fill(gradient.begin(), gradient.end(), BF16::from_float(mine));
      reducer.mark_ready(0);
      reducer.mark_ready(1);
      reducer.wait();
      for (const std::uint16_t sum : gradient) ASSERT_EQ(BF16::to_float(sum), 1.0f + 0x1p-7f);
      EXPECT_EQ(single_gradient[2], 5.0f);
    });
  }
}

/// The sum of three ranks is more than an f16 can be, the average of four is not.
TEST(HalfInF32, KeepsSumsFromOverflowing) {
  for (const char* transports : {"shm", "tcp"}) {
    on_ranks(4, transports, [](Communicator& communicator) {
      constexpr std::size_t kCount = 1000;
      std::vector<std::uint16_t> value(kCount);
      const std::vector<Parameter> list{{"half", DataType::f16, {kCount}, value.data()}};
      ReducerOptions options;
      options.half_in_f32 = options.check_finite = true;
      Reducer reducer(communicator, list, options);
      auto* half = static_cast<std::uint16_t*>(reducer.gradient(0));
      std::fill_n(half, kCount, F16::from_float(40'000));
      reducer.mark_ready(0);
      reducer.wait();
      for (std::size_t e = 0; e < kCount; ++e) ASSERT_EQ(F16::to_float(half[e]), 40'000);
    });
  }
}

TEST(HalfInF32, IsNoCompanionOfAHook) {
  on_ranks(1, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.half_in_f32 = true;
    options.hook = make_hook("any", [](Communicator&, const GradientBucket&) { return HookResult{}; });
    EXPECT_EQ(thrown_by([&] { Numbers numbers(communicator, 1, options); }).code(),
              ErrorCode::invalid_argument);
  });
}

/// Weights are no powers of two: a gradient that was rounded when it had been weighted is another one.
TEST(HalfInF32, RoundsOnceWithWeightsToo) {
  for (const bool views : {false, true}) {
    on_ranks(2, "auto", [&](Communicator& communicator) {
      constexpr std::size_t kCount = 1000;
      const std::uint64_t samples[] = {7, 8};
      const auto bits = [](int rank, std::size_t e) {
        return BF16::from_float(static_cast<float>(e * 37 % 256 + 1) / (rank == 0 ? 64.0f : 3.0f));
      };
      std::vector<std::uint16_t> value(kCount), gradient(kCount);
      std::vector<float> single(1), single_gradient(1);
      std::vector<Parameter> list{{"half", DataType::bf16, {kCount}, value.data(), nullptr},
                                  {"single", DataType::f32, {}, single.data(), nullptr}};
      if (!views) {
        list[0].gradient = gradient.data();
        list[1].gradient = single_gradient.data();
      }
      ReducerOptions options;
      options.gradients_as_views = views;
      options.half_in_f32 = options.weighted = true;
      Reducer reducer(communicator, list, options);
      const int rank = communicator.rank();
      auto* half = static_cast<std::uint16_t*>(reducer.gradient(0));
      for (std::size_t e = 0; e < kCount; ++e) half[e] = bits(rank, e);
      *static_cast<float*>(reducer.gradient(1)) = static_cast<float>(rank + 1);
      ASSERT_TRUE(reducer.begin_step(samples[rank]));
      reducer.mark_ready(0);
      reducer.mark_ready(1);
      reducer.wait();
      for (std::size_t e = 0; e < kCount; ++e) {
        const auto weighted = [&](int r) {
          const auto weight = static_cast<float>(static_cast<double>(samples[r]) / 15.0);
          return BF16::to_float(bits(r, e)) * weight;
        };
        ASSERT_EQ(half[e], BF16::from_float(weighted(0) + weighted(1))) << e;
      }
      EXPECT_FLOAT_EQ(*static_cast<float*>(reducer.gradient(1)), 23.0f / 15.0f);
      // The weight ends with its step.
      ASSERT_TRUE(reducer.begin_step(1));
      std::fill_n(half, kCount, BF16::from_float(static_cast<float>(rank + 1)));
      reducer.mark_ready(0);
      reducer.mark_ready(1);
      reducer.wait();
      EXPECT_EQ(BF16::to_float(half[5]), 1.5f);
    });
  }
}

}  // namespace
}  // namespace lockstep
