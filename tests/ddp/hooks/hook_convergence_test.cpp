// A network trained through each hook is as accurate as without: within 0.5 points on the held-out digits.
// Prints the rows of the table in docs/compression.md.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/ddp/hooks/digits_training.hpp"

namespace lockstep::testing {
namespace {

constexpr int kRanks = 3;  // Quantised hooks take their longer way.
constexpr double kAllowedLoss = 0.005;

TrainingOutcome uncompressed() {
  const auto counting = [] {
    return make_hook("none", [](Communicator& communicator, const GradientBucket& bucket) {
      return HookResult{
          communicator.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op())};
    });
  };
  return train_digits(kRanks, counting);
}

const TrainingOutcome& reference() {
  static const TrainingOutcome outcome = uncompressed();
  return outcome;
}

struct Case {
  const char* name;
  HookMaker make;
};

class HookConvergence : public ::testing::TestWithParam<Case> {};

TEST_P(HookConvergence, IsAsAccurateAsWithout) {
  ASSERT_GT(reference().accuracy, 0.95);
  const TrainingOutcome outcome = train_digits(kRanks, GetParam().make);
  std::printf("%-12s accuracy %.2f %% (without: %.2f %%), %.3f MB a rank, %.1f times fewer\n",
              GetParam().name, 100 * outcome.accuracy, 100 * reference().accuracy,
              static_cast<double>(outcome.bytes_on_wire) / 1e6,
              static_cast<double>(reference().bytes_on_wire) / static_cast<double>(outcome.bytes_on_wire));
  EXPECT_GE(outcome.accuracy, reference().accuracy - kAllowedLoss);
  EXPECT_LT(outcome.bytes_on_wire, 0.6 * static_cast<double>(reference().bytes_on_wire));
}

INSTANTIATE_TEST_SUITE_P(
    Hooks, HookConvergence,
    ::testing::Values(
        Case{"bf16", [] { return make_half_hook(DataType::bf16); }},
        Case{"f16", [] { return make_half_hook(DataType::f16); }},
        Case{"i8", [] { return make_quantised_hook(); }},
        Case{"f8e4m3", [] { return make_quantised_hook({.type = DataType::f8e4m3}); }},
        Case{"f8e5m2", [] { return make_quantised_hook({.type = DataType::f8e5m2}); }},
        Case{"top_k", [] { return make_top_k_hook({.share = 0.05}); }},
        Case{"powersgd", [] { return make_power_sgd_hook({.rank = 4}); }},
        Case{"local_sgd", [] { return std::make_shared<LocalSgd>(LocalSgdOptions{.period = 4}); }},
        Case{"post_local",
             [] { return std::make_shared<LocalSgd>(LocalSgdOptions{.start_step = 46, .period = 8}); }}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace lockstep::testing
