// Conversions to the types of the wire, against the scalar definitions of lib/base/float16.hpp.
#include "lib/reduce/convert.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "lib/base/float16.hpp"

namespace lockstep::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Every magnitude from subnormals to infinity, both signs, NaN, and ties.
std::vector<float> any_floats(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values{0.0f, -0.0f, kInfinity, -kInfinity, kNan,  448,
                            464,  465,   57344,     65504,      65520, 1e-45f};
  while (values.size() < count) values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  values.resize(count);
  return values;
}

template <class Format>
void expect_scalar_result(DataType type) {
  for (const std::size_t count : {0u, 1u, 3u, 17u, 100'003u}) {
    const std::vector<float> input = any_floats(count, 7);
    std::vector<typename Format::Bits> bits(count);
    std::vector<float> back(count);
    narrow(type, input.data(), bits.data(), count, 0.25f);
    widen(type, bits.data(), back.data(), count, 2.0f);
    for (std::size_t i = 0; i < count; ++i) {
      const float scaled = input[i] * 0.25f;
      const auto expected = Format::from_float(scaled);
      if (std::isnan(Format::to_float(expected))) {
        ASSERT_TRUE(std::isnan(back[i])) << name_of(type) << " of " << scaled;
      } else {
        ASSERT_EQ(bits[i], expected) << name_of(type) << " of " << scaled;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(back[i] + 0.0f),
                  std::bit_cast<std::uint32_t>(Format::to_float(expected) * 2.0f + 0.0f));
      }
    }
  }
}

TEST(Convert, FloatsRoundAsTheScalarDefinitions) {
  expect_scalar_result<F16>(DataType::f16);
  expect_scalar_result<BF16>(DataType::bf16);
  expect_scalar_result<F8E4M3>(DataType::f8e4m3);
  expect_scalar_result<F8E5M2>(DataType::f8e5m2);
}

TEST(Convert, KnowsItsTypes) {
  for (const DataType type :
       {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2, DataType::i8})
    EXPECT_TRUE(is_narrow(type));
  for (const DataType type : {DataType::f32, DataType::f64, DataType::i32, DataType::complex64})
    EXPECT_FALSE(is_narrow(type));
}

TEST(Convert, Int8RoundsToNearestEvenAndSaturates) {
  const std::vector<float> input{0.5f, 1.5f, -2.5f, 126.6f, 127.6f, -500.0f, kInfinity, -0.4f, 3.0f};
  std::vector<std::int8_t> codes(input.size());
  narrow(DataType::i8, input.data(), codes.data(), input.size(), 1);
  EXPECT_EQ(codes, (std::vector<std::int8_t>{0, 2, -2, 127, 127, -127, 127, 0, 3}));
}

struct BlockCase {
  DataType type;
  float relative;  ///< Largest error of an element by the largest magnitude of its block.
};

class Quantise : public ::testing::TestWithParam<BlockCase> {};

TEST_P(Quantise, IsWithinHalfAStepOfEveryElement) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  for (const std::size_t count : {1u, 31u, 256u, 1'000u}) {
    for (const std::size_t block : {1u, 5u, 64u, 256u}) {
      std::vector<float> input(count), output(count), sum(count, 1.0f);
      for (float& x : input) x = normal(random) * std::pow(10.0f, static_cast<float>(random() % 30) - 15.0f);
      std::vector<float> scales((count + block - 1) / block);
      std::vector<std::uint8_t> codes(count);
      quantise(GetParam().type, input.data(), count, block, scales.data(), codes.data());
      dequantise(GetParam().type, scales.data(), codes.data(), count, block, 1.0f, output.data(),
                 Into::replace);
      dequantise(GetParam().type, scales.data(), codes.data(), count, block, 0.5f, sum.data(), Into::add);
      for (std::size_t i = 0; i < count; ++i) {
        float largest = 0;
        for (std::size_t j = i / block * block; j < std::min(count, (i / block + 1) * block); ++j)
          largest = std::max(largest, std::abs(input[j]));
        ASSERT_NEAR(output[i], input[i], largest * GetParam().relative) << i;
        ASSERT_FLOAT_EQ(sum[i], 1.0f + 0.5f * output[i]);
      }
    }
  }
}

TEST_P(Quantise, KeepsTheLargestOfABlock) {
  const std::vector<float> input{0.1f, -3.0f, 2.0f, 1e-30f};
  std::vector<float> output(4), scales(1);
  std::vector<std::uint8_t> codes(4);
  quantise(GetParam().type, input.data(), 4, 4, scales.data(), codes.data());
  dequantise(GetParam().type, scales.data(), codes.data(), 4, 4, 1, output.data(), Into::replace);
  EXPECT_FLOAT_EQ(output[1], -3.0f);
}

TEST_P(Quantise, ZeroesStayAndWhatIsNotFiniteTakesItsBlockAlong) {
  const std::vector<float> input{0, 0, 1, kInfinity, 1, kNan, 1e-42f, 0, 1, 2};
  std::vector<float> output(input.size()), scales(5);
  std::vector<std::uint8_t> codes(input.size());
  quantise(GetParam().type, input.data(), input.size(), 2, scales.data(), codes.data());
  dequantise(GetParam().type, scales.data(), codes.data(), input.size(), 2, 1, output.data(), Into::replace);
  for (const std::size_t i : {0u, 1u, 6u, 7u}) EXPECT_EQ(output[i], 0.0f) << i;
  for (const std::size_t i : {2u, 3u, 4u, 5u}) EXPECT_TRUE(std::isnan(output[i])) << i;
  EXPECT_EQ(output[9], 2.0f);
}

/// Where one over the scale is more than an f32 can be, a block is zero.
TEST_P(Quantise, TheSmallestAreZeroOrAsCloseAsOthers) {
  for (int exponent = -149; exponent < -100; ++exponent) {
    const float largest = std::ldexp(1.25f, exponent);
    const std::vector<float> input{largest, largest / 3, 0, -largest / 2};
    std::vector<float> output(4), scales(1);
    std::vector<std::uint8_t> codes(4);
    quantise(GetParam().type, input.data(), 4, 4, scales.data(), codes.data());
    dequantise(GetParam().type, scales.data(), codes.data(), 4, 4, 1, output.data(), Into::replace);
    if (output[0] == 0) {
      EXPECT_EQ(output, std::vector<float>(4)) << exponent;
      EXPECT_LT(exponent, -110) << "small, but not too small";
      continue;
    }
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(output[i], input[i], largest * GetParam().relative) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Quantise,
                         ::testing::Values(BlockCase{DataType::i8, 0.51f / 127},
                                           BlockCase{DataType::f8e4m3, 0.0626f},
                                           BlockCase{DataType::f8e5m2, 0.126f}),
                         [](const auto& row) { return std::string(name_of(row.param.type)); });

}  // namespace
}  // namespace lockstep::internal
