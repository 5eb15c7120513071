// Fitting finds the costs that made the times, through noise and outliers.
#include "collectives/select/fit.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

LinkCost truth() {
  LinkCost cost;
  cost.call = 400e-9;
  cost.step = 700e-9;
  cost.alpha = 5e-6;
  cost.sync = 200e-9;
  const double scales[] = {1, 1.6, 4};
  const std::uint64_t ends[] = {128 << 10, 2 << 20, UINT64_MAX};
  for (std::size_t i = 0; i < kRegimes; ++i)
    cost.regimes[i] = {ends[i], 0.1e-9 * scales[i], 0.05e-9 * scales[i], 0.02e-9 * scales[i]};
  return cost;
}

/// As an engineer might guess: every cost wrong, by another factor.
LinkCost guess() {
  LinkCost cost = truth();
  cost.call *= 3;
  cost.step /= 2;
  cost.alpha *= 0.4;
  cost.sync *= 5;
  for (LinkCost::Regime& regime : cost.regimes) {
    regime.beta *= 2.5;
    regime.gamma /= 3;
    regime.copy *= 1.7;
  }
  return cost;
}

std::vector<Sample> samples_of(Medium medium) {
  std::vector<Sample> samples;
  for (const int world : {2, 4}) {
    for (const std::uint64_t size : {64, 1 << 10, 8 << 10, 64 << 10, 512 << 10, 4 << 20}) {
      for (const Algorithm& algorithm : algorithms()) {
        const CostGround ground{world, Load::spare, 256 << 10};
        if (algorithm.medium != medium || !supports(algorithm, ground, size)) continue;
        samples.push_back({&algorithm, ground, size, 0});
        samples.back().seconds = predicted(samples.back(), truth());
      }
    }
  }
  return samples;
}

/// The largest relative difference from the true prediction.
double worst_error(const std::vector<Sample>& samples, const LinkCost& fitted) {
  double worst = 0;
  for (const Sample& sample : samples)
    worst = std::max(worst, std::abs(predicted(sample, fitted) / predicted(sample, truth()) - 1));
  return worst;
}

class FitOver : public ::testing::TestWithParam<Medium> {};
INSTANTIATE_TEST_SUITE_P(Media, FitOver,
                         ::testing::Values(Medium::links, Medium::domain_staged, Medium::domain_registered));

TEST_P(FitOver, FindsTheCostsThatMadeTheTimes) {
  const auto samples = samples_of(GetParam());
  ASSERT_GT(samples.size(), 30u);
  EXPECT_GT(worst_error(samples, guess()), 0.5);
  EXPECT_LT(worst_error(samples, fit_link_cost(guess(), samples)), 0.03);
}

TEST_P(FitOver, BearsNoiseAndOutliers) {
  auto samples = samples_of(GetParam());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double noise = static_cast<double>(hash_combine(kFnvOffset, i) % 1000) / 1000 - 0.5;
    samples[i].seconds *= 1 + 0.1 * noise;
    if (i % 17 == 5) samples[i].seconds *= 8;
  }
  EXPECT_LT(worst_error(samples, fit_link_cost(guess(), samples)), 0.25);
}

TEST(Fit, KeepsWhatTheSamplesSayNothingAbout) {
  const auto samples = samples_of(Medium::domain_registered);
  const LinkCost fitted = fit_link_cost(guess(), samples);
  EXPECT_NEAR(fitted.alpha / guess().alpha, 1, 1e-6) << "no message is sent on registered memory";
  EXPECT_EQ(fit_link_cost(guess(), {}), guess());
}

TEST(Fit, NoCostIsNegative) {
  auto samples = samples_of(Medium::links);
  for (Sample& sample : samples) sample.seconds = 1e-6;  // Long messages for nothing.
  const LinkCost fitted = fit_link_cost(guess(), samples);
  EXPECT_GE(fitted.call, 0);
  EXPECT_GE(fitted.step, 0);
  EXPECT_GE(fitted.alpha, 0);
  for (const LinkCost::Regime& regime : fitted.regimes) {
    EXPECT_GE(regime.beta, 0);
    EXPECT_GE(regime.gamma, 0);
    EXPECT_GE(regime.copy, 0);
  }
}

}  // namespace
}  // namespace lockstep::internal
