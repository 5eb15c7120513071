// PowerSGD through a Reducer: whatever the factors leave out comes in later steps.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "lockstep/ddp.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;

constexpr std::size_t kRows = 24, kColumns = 32, kElements = kRows * kColumns;

/// Of one rank. Of full rank, so that no step sends all of it.
std::vector<float> matrix_of(int rank) {
  std::mt19937 random(static_cast<unsigned>(rank) + 1);
  std::normal_distribution<float> distribution(0, 1);
  std::vector<float> matrix(kElements);
  for (float& x : matrix) x = distribution(random);
  return matrix;
}

/// Relative distance of what `steps` steps of one gradient, times `scale`, have sent on the average from that
/// gradient's average over two ranks.
double distance_after(const PowerSgdOptions& options, int steps, float scale) {
  double distance = 0;
  on_ranks(2, "auto", [&](Communicator& communicator) {
    std::vector<float> values(kElements);
    const std::vector<Parameter> list{{"w", DataType::f32, {kRows, kColumns}, values.data(), nullptr}};
    Reducer reducer(communicator, list, {.hook = make_power_sgd_hook(options)});
    const std::vector<float> mine = matrix_of(communicator.rank());
    auto* const gradient = static_cast<float*>(reducer.gradient(0));
    std::vector<double> sent(kElements);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < kElements; ++i) gradient[i] = mine[i] * scale;
      reducer.mark_ready(0);
      reducer.wait();
      for (std::size_t i = 0; i < kElements; ++i) sent[i] += static_cast<double>(gradient[i]) / scale / steps;
    }
    if (communicator.rank() != 0) return;
    const std::vector<float> other = matrix_of(1);
    double error = 0, square = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const double average = (static_cast<double>(mine[i]) + other[i]) / 2;
      error += (sent[i] - average) * (sent[i] - average);
      square += average * average;
    }
    distance = std::sqrt(error / square);
  });
  return distance;
}

/// With the same factors in every step most of the gradient would never be sent.
TEST(PowerSgd, ColdOrWarmSendsTheGradientInTheLongRun) {
  for (const bool warm : {true, false}) {
    EXPECT_LT(distance_after({.rank = 2, .start_step = 1, .warm_start = warm}, 200, 1), 0.15) << warm;
  }
}

/// Squares of these are no finite numbers, or zero.
TEST(PowerSgd, GradientsOfAnySizeComeThrough) {
  for (const float scale : {1e-36f, 1e-30f, 1e20f, 1e30f}) {
    EXPECT_LT(distance_after({.rank = 4, .start_step = 1}, 100, scale), 0.15) << scale;
  }
}

}  // namespace
}  // namespace lockstep
