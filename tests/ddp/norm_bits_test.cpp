// Norms have the same bits on every processor: no square is added unrounded, as one with fused operations
// would.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "ddp/gradient_math.hpp"

namespace lockstep::internal {
namespace {

TEST(NormBits, SquaresAreRoundedBeforeTheyAreAdded) {
  constexpr std::size_t kApart = 16;  // Of what lies between two numbers nothing is added to their sum.
  std::mt19937_64 random(5);
  std::vector<double> numbers(1000 * kApart);
  double sum = 0;
  for (std::size_t i = 0; i < numbers.size(); i += kApart) {
    numbers[i] = static_cast<double>(random() >> 11);
    const volatile double square = numbers[i] * numbers[i];
    sum += square;
  }
  EXPECT_EQ(squared_sum(DataType::f64, numbers.data(), numbers.size()), sum);
}

}  // namespace
}  // namespace lockstep::internal
