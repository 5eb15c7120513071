// The mathematics of the hooks, without ranks: selection of the largest, low-rank factors, block codes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "ddp/hooks/block_codec.hpp"
#include "ddp/hooks/largest.hpp"
#include "ddp/hooks/low_rank.hpp"

namespace lockstep::internal {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> normal(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0, 1);
  std::vector<float> values(count);
  for (float& x : values) x = distribution(random);
  return values;
}

std::vector<std::uint32_t> largest(const std::vector<float>& values, std::size_t k) {
  std::vector<std::uint32_t> indices(k);
  find_largest(values, indices);
  return indices;
}

TEST(FindLargest, AgreesWithSorting) {
  for (const unsigned seed : {1u, 2u, 3u}) {
    std::vector<float> values = normal(5'000, seed);
    for (std::size_t i = 0; i < values.size(); i += 7) values[i] = std::round(values[i]);  // Many ties.
    std::vector<std::uint32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(),
                     [&](auto a, auto b) { return std::abs(values[a]) > std::abs(values[b]); });
    for (const std::size_t k : {1u, 2u, 50u, 714u, 4'999u, 5'000u}) {
      std::vector<std::uint32_t> expected(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(largest(values, k), expected) << k;
    }
  }
}

TEST(FindLargest, PutsWhatIsNotFiniteFirst) {
  EXPECT_EQ(largest({1, -kInfinity, 3, kNan, 1e38f}, 2), (std::vector<std::uint32_t>{1, 3}));
  EXPECT_EQ(largest({1, -kInfinity, 3, kNan, 1e38f}, 1), (std::vector<std::uint32_t>{3}));
}

TEST(FindLargest, TakesTheFirstAmongEqualOnes) {
  EXPECT_EQ(largest({0, 0, 0, 0}, 2), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(largest({1, -2, 2, 2}, 2), (std::vector<std::uint32_t>{1, 2}));
}

TEST(BlockCodec, ErrorFeedbackSendsTheSumInTheLongRun) {
  for (const DataType type : {DataType::i8, DataType::f8e4m3, DataType::f8e5m2}) {
    const BlockCodec codec(type, 64);
    const std::vector<float> gradient = normal(1'000, 5);
    std::vector<float> residual(gradient.size()), received(gradient.size());
    std::vector<std::byte> encoded(codec.encoded_bytes(gradient.size()));
    constexpr int kSteps = 200;
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t i = 0; i < residual.size(); ++i) residual[i] += gradient[i];
      codec.encode(residual, encoded.data());
      codec.decode(encoded.data(), -1, residual, Into::add);
      codec.decode(encoded.data(), 1, received, Into::add);
    }
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_NEAR(received[i] / kSteps, gradient[i], 0.01f) << name_of(type);
    }
  }
}

TEST(BlockCodec, DropsWhatIsNotFiniteFromTheResidual) {
  const BlockCodec codec(DataType::i8, 4);
  std::vector<float> residual{1, 2, kNan, 4, 5, 6.3f};
  std::vector<std::byte> encoded(codec.encoded_bytes(residual.size()));
  codec.encode(residual, encoded.data());
  codec.decode(encoded.data(), -1, residual, Into::add);
  codec.drop_lost(encoded.data(), residual);
  for (const std::size_t i : {0u, 1u, 2u, 3u}) EXPECT_EQ(residual[i], 0.0f);
  for (const std::size_t i : {4u, 5u}) EXPECT_LT(std::abs(residual[i]), 0.03f);
}

TEST(BlockCodec, SizeIsAByteAnElementAndAScaleABlock) {
  const BlockCodec codec(DataType::i8, 256);
  EXPECT_EQ(codec.encoded_bytes(0), 0u);
  EXPECT_EQ(codec.encoded_bytes(1), 4u + 4u);
  EXPECT_EQ(codec.encoded_bytes(256), 4u + 256u);
  EXPECT_EQ(codec.encoded_bytes(257), 8u + 260u);
}

double inner(const float* a, const float* b, std::size_t n) { return std::inner_product(a, a + n, b, 0.0); }

TEST(LowRank, ColumnsBecomeOrthonormal) {
  for (const std::size_t rows : {5u, 16u, 333u}) {
    constexpr std::size_t kRank = 5;
    std::vector<float> columns = normal(rows * kRank, 9);
    for (std::size_t i = rows; i < 2 * rows; ++i)  // Almost the first column.
      columns[i] = columns[i - rows] + 1e-3f * columns[i];
    for (float& x : columns) x *= 1e-25f;  // Squares of these underflow.
    orthonormalise(columns.data(), rows, kRank);
    for (std::size_t a = 0; a < kRank; ++a) {
      for (std::size_t b = 0; b <= a; ++b) {
        ASSERT_NEAR(inner(&columns[a * rows], &columns[b * rows], rows), a == b ? 1.0 : 0.0, 1e-5);
      }
    }
  }
}

TEST(LowRank, DependentColumnsBecomeZeroAndAreRefilled) {
  std::vector<float> columns{1, 2, 3, 2, 4, 6, 0, 0, 0};
  orthonormalise(columns.data(), 3, 3);
  EXPECT_NEAR(inner(columns.data(), columns.data(), 3), 1.0, 1e-6);
  EXPECT_TRUE(std::all_of(columns.begin() + 3, columns.end(), [](float x) { return x == 0.0f; }));
  columns[0] = kNan;
  refill_empty(columns.data(), 3, 3, 4);
  EXPECT_TRUE(std::all_of(columns.begin(), columns.end(),
                          [](float x) { return std::isfinite(x) && x != 0.0f && std::abs(x) <= 1.0f; }));
}

/// Relative distance of m from its approximation after `rounds` of warm-started power iteration.
double distance_after(const std::vector<float>& m, MatrixShape shape, std::size_t rank, int rounds) {
  std::vector<float> p(shape.rows * rank), q(shape.columns * rank), approximation(m.size());
  refill_empty(q.data(), shape.columns, rank, 1);
  for (int round = 0; round < rounds; ++round) {
    multiply(m.data(), shape, rank, q.data(), p.data());
    orthonormalise(p.data(), shape.rows, rank);
    multiply_transposed(m.data(), shape, rank, p.data(), q.data());
  }
  expand(p.data(), q.data(), shape, rank, 1, approximation.data());
  double error = 0;
  for (std::size_t i = 0; i < m.size(); ++i) error += std::pow(m[i] - approximation[i], 2);
  return std::sqrt(error / inner(m.data(), m.data(), m.size()));
}

TEST(LowRank, AMatrixOfThatRankIsExact) {
  const MatrixShape shape{37, 51};
  const std::vector<float> p = normal(shape.rows * 3, 1), q = normal(shape.columns * 3, 2);
  std::vector<float> m(shape.count());
  expand(p.data(), q.data(), shape, 3, 2.0f, m.data());
  EXPECT_NEAR(m[5 * shape.columns + 7],
              2 * (p[5] * q[7] + p[shape.rows + 5] * q[shape.columns + 7] +
                   p[2 * shape.rows + 5] * q[2 * shape.columns + 7]),
              1e-4);
  EXPECT_LT(distance_after(m, shape, 3, 1), 1e-5);
  EXPECT_LT(distance_after(m, shape, 4, 1), 1e-5);
  EXPECT_GT(distance_after(m, shape, 2, 1), 1e-2);
}

TEST(LowRank, WarmStartsComeCloser) {
  const MatrixShape shape{40, 60};
  const std::vector<float> m = normal(shape.count(), 3);
  EXPECT_LT(distance_after(m, shape, 4, 20), distance_after(m, shape, 4, 1));
}

}  // namespace
}  // namespace lockstep::internal
