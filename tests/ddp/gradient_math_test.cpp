// Passes over gradients: finite or not, norms, hashes; in every type, at every length.
#include "ddp/gradient_math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "ddp/device/gradient_pass.hpp"
#include "lib/base/element_types.hpp"
#include "lib/base/float16.hpp"
#include "lockstep/ddp.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::internal {
namespace {

constexpr DataType kTypes[] = {DataType::f16,       DataType::bf16,       DataType::f32,    DataType::f64,
                               DataType::complex64, DataType::complex128, DataType::f8e4m3, DataType::f8e5m2};

/// Reals of a complex type count as two elements here.
std::size_t reals(DataType type) { return parts_of(type).count; }

void put(DataType type, void* data, std::size_t real, double value) {
  const auto as = [&](auto stored) {
    std::memcpy(static_cast<std::byte*>(data) + real * sizeof stored, &stored, sizeof stored);
  };
  switch (type) {
    case DataType::f16:
      return as(F16::from_float(static_cast<float>(value)));
    case DataType::bf16:
      return as(BF16::from_float(static_cast<float>(value)));
    case DataType::f8e4m3:
      return as(F8E4M3::from_float(static_cast<float>(value)));
    case DataType::f8e5m2:
      return as(F8E5M2::from_float(static_cast<float>(value)));
    case DataType::f64:
    case DataType::complex128:
      return as(value);
    default:
      return as(static_cast<float>(value));
  }
}

TEST(GradientMath, FindsOneBadValueAnywhere) {
  for (const DataType type : kTypes) {
    for (const std::size_t count : {1u, 7u, 64u, 4096u, 5000u}) {
      std::vector<std::byte> data(count * size_of(type));
      for (std::size_t e = 0; e < count * reals(type); ++e) {
        put(type, data.data(), e, static_cast<double>(e % 5) - 2);
      }
      EXPECT_TRUE(all_finite(type, data.data(), count)) << name_of(type);
      for (const std::size_t at : {std::size_t{0}, count / 2, count * reals(type) - 1}) {
        for (const double bad :
             {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
          auto spoilt = data;
          put(type, spoilt.data(), at, bad);
          EXPECT_FALSE(all_finite(type, spoilt.data(), count)) << name_of(type) << " " << at << " " << bad;
        }
      }
    }
    EXPECT_TRUE(all_finite(type, nullptr, 0));
  }
}

TEST(GradientMath, TakesTheLargestFiniteNumberForFinite) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_TRUE(all_finite(DataType::f32, &largest, 1));
  const std::uint8_t f8 = 0x7e;  // 448
  EXPECT_TRUE(all_finite(DataType::f8e4m3, &f8, 1));
}

TEST(GradientMath, SumsSquares) {
  for (const DataType type : kTypes) {
    for (const std::size_t count : {0u, 1u, 9u, 100u}) {
      std::vector<std::byte> data(count * size_of(type));
      double expected = 0;
      for (std::size_t e = 0; e < count * reals(type); ++e) {
        const double value = static_cast<double>(e % 7) - 3;
        put(type, data.data(), e, value);
        expected += value * value;
      }
      EXPECT_EQ(squared_sum(type, data.data(), count), expected) << name_of(type) << " x " << count;
    }
  }
}

TEST(GradientMath, TakesNoOtherTypeForFloats) {
  const std::uint64_t ones = 1;
  for (int i = 0; i <= kDataTypeCount; ++i) {  // The last is no type at all.
    const auto type = static_cast<DataType>(i);
    const bool listed = std::find(std::begin(kTypes), std::end(kTypes), type) != std::end(kTypes);
    EXPECT_EQ(is_gradient_type(type), listed) << name_of(type);
    if (listed) continue;
    EXPECT_FALSE(all_finite(type, &ones, 1)) << name_of(type);
    EXPECT_TRUE(std::isnan(squared_sum(type, &ones, 1))) << name_of(type);
    double sum = 0;
    gradient_pass::Arguments pass{};
    pass.type = type;
    pass.data = const_cast<std::uint64_t*>(&ones);
    pass.count = 1;
    pass.slots = &sum;
    gradient_pass::square(pass, 0);
    EXPECT_EQ(sum, 0) << name_of(type);
  }
}

TEST(GradientMath, HashesEveryByte) {
  std::vector<std::byte> data(203);
  const std::uint64_t before = hash_bytes(data.data(), data.size());
  EXPECT_EQ(hash_bytes(data.data(), data.size()), before);
  for (std::byte& byte : data) {
    byte = std::byte{1};
    EXPECT_NE(hash_bytes(data.data(), data.size()), before);
    byte = std::byte{0};
  }
  EXPECT_NE(hash_bytes(data.data(), data.size() - 1), before);
  EXPECT_EQ(hash_bytes(nullptr, 0), hash_bytes(data.data(), 0));
}

TEST(GradientNorm, ClipsShardsByTheNormOfAll) {
  lockstep::testing::on_ranks(3, "auto", [](Communicator& communicator) {
    std::vector<float> shard(5, static_cast<float>(communicator.rank() + 1));
    const GradientSpan span{DataType::f32, shard.data(), shard.size()};
    const double norm = std::sqrt(5.0 * (1 + 4 + 9));
    EXPECT_DOUBLE_EQ(clip_by_global_norm({&span, 1}, 100, &communicator), norm);
    EXPECT_EQ(shard[0], static_cast<float>(communicator.rank() + 1)) << "below the limit nothing is scaled";
    EXPECT_DOUBLE_EQ(clip_by_global_norm({&span, 1}, 2, &communicator), norm);
    EXPECT_FLOAT_EQ(shard[4], static_cast<float>((communicator.rank() + 1) * 2 / norm));
  });
}

TEST(GradientNorm, ThatOneRankCannotTakeIsAnErrorOnAllRanks) {
  lockstep::testing::on_ranks(3, "auto", [](Communicator& communicator) {
    float value = 1;
    const GradientSpan span{DataType::f32, &value, 1};
    const bool culprit = communicator.rank() == 1;
    const Error error = lockstep::testing::thrown_by([&] {
      clip_by_global_norm({&span, 1}, culprit ? -1 : 1, &communicator);
    });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_EQ(error.code(), culprit ? ErrorCode::invalid_argument : ErrorCode::refused);
    EXPECT_DOUBLE_EQ(clip_by_global_norm({&span, 1}, 2, &communicator), std::sqrt(3.0));
  });
}

TEST(GradientNorm, ScalesComplexNumbersAndRefusesIntegers) {
  float values[4] = {1, 2, 3, 4};
  const GradientSpan span{DataType::complex64, values, 2};
  scale_gradients({&span, 1}, 0.5);
  EXPECT_EQ(values[3], 2.0f);
  double large[4] = {1, 2, 3, 4};
  const GradientSpan doubles{DataType::complex128, large, 2};
  scale_gradients({&doubles, 1}, 0.5);
  EXPECT_EQ(large[3], 2.0);
  const GradientSpan integers{DataType::i32, values, 4};
  EXPECT_EQ(lockstep::testing::thrown_by([&] {
              squared_norm({&integers, 1});
            }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(lockstep::testing::thrown_by([&] {
              clip_by_global_norm({&span, 1}, 0);
            }).code(),
            ErrorCode::invalid_argument);
}

TEST(GradientNorm, OfAnInfinityScalesNothing) {
  float values[2] = {1, std::numeric_limits<float>::infinity()};
  const GradientSpan span{DataType::f32, values, 2};
  EXPECT_TRUE(std::isinf(clip_by_global_norm({&span, 1}, 1)));
  EXPECT_EQ(values[0], 1.0f);
}

}  // namespace
}  // namespace lockstep::internal
