// A network trained through each hook is as accurate as without: within 0.5 points on the held-out digits.
// Prints the rows of the table in docs/compression.md.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/ddp/hooks/digits_training.hpp"
#include "tests/ddp/hooks/every_hook.hpp"

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
  std::string name;
  HookMaker make;
};

/// Gentler than by default where that would take more steps than there are here.
std::shared_ptr<CommunicationHook> make_hook(std::string_view name) {
  if (name == "top_k") return make_top_k_hook({.share = 0.05});
  if (name == "powersgd") return make_power_sgd_hook({.rank = 4});
  return hook_by_name(name);
}

std::vector<Case> every_case() {
  std::vector<Case> cases;
  for (const std::string_view name : every_hook())
    cases.push_back({std::string(name), [name] { return make_hook(name); }});
  cases.push_back({"local_sgd", [] { return std::make_shared<LocalSgd>(LocalSgdOptions{.period = 4}); }});
  cases.push_back({"post_local", [] {
                     return std::make_shared<LocalSgd>(LocalSgdOptions{.start_step = 46, .period = 8});
                   }});
  return cases;
}

class HookConvergence : public ::testing::TestWithParam<Case> {};

TEST_P(HookConvergence, IsAsAccurateAsWithout) {
  ASSERT_GT(reference().accuracy, 0.95);
  const TrainingOutcome outcome = train_digits(kRanks, GetParam().make);
  std::printf("%-12s accuracy %.2f %% (without: %.2f %%), %.3f MB a rank, %.1f times fewer\n",
              GetParam().name.c_str(), 100 * outcome.accuracy, 100 * reference().accuracy,
              static_cast<double>(outcome.bytes_on_wire) / 1e6,
              static_cast<double>(reference().bytes_on_wire) / static_cast<double>(outcome.bytes_on_wire));
  EXPECT_GE(outcome.accuracy, reference().accuracy - kAllowedLoss);
  EXPECT_LT(outcome.bytes_on_wire, 0.6 * static_cast<double>(reference().bytes_on_wire));
}

INSTANTIATE_TEST_SUITE_P(Hooks, HookConvergence, ::testing::ValuesIn(every_case()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace lockstep::testing
