// A prediction is the longest path through the steps of all ranks: for given costs a sum of costs, each so
// many times. So it is linear as long as the same path stays the longest. Each round fits the costs along the
// present longest paths (weighted least squares, by coordinate descent within the non-negative costs), and
// goes a limited way there. The nearest of all rounds is the result.
#include "collectives/select/fit.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::internal {
namespace {

constexpr int kRounds = 20;
constexpr int kSweeps = 100;
constexpr double kStride = 1.5;       ///< By how much a cost may change in a round: the paths change with it.
constexpr double kLeastShare = 1e-3;  ///< Of its scale; below, a cost is as good as none.
constexpr double kPriorWeight = 0.01;  ///< Of one sample: decides only what the samples leave open.
constexpr double kHeld = 1e6;          ///< Weight of a cost that must not move.
constexpr double kFar = 0.3;           ///< Relative error from which a sample counts less.
constexpr double kNoLatency = 10e-9, kNoByteCost = 1e-12;  ///< Scale of costs whose prior is zero.

constexpr std::size_t kLatencies = 4, kByteCosts = 3, kStep = 1;
constexpr std::size_t kCosts = kLatencies + kByteCosts * kRegimes;

double& cost_at(LinkCost& cost, std::size_t index) {
  double* const latencies[] = {&cost.call, &cost.step, &cost.alpha, &cost.sync};
  if (index < kLatencies) return *latencies[index];
  LinkCost::Regime& regime = cost.regimes[(index - kLatencies) / kByteCosts];
  double* const byte_costs[] = {&regime.beta, &regime.gamma, &regime.copy};
  return *byte_costs[(index - kLatencies) % kByteCosts];
}

/// One sample along its longest path: counts[i] * costs[i] add up to its prediction. Both sides are divided
/// by the measured time.
struct Equation {
  std::array<double, kCosts> counts{};
  double weight = 1;
};

class Fit {
 public:
  Fit(const LinkCost& prior, std::span<const Sample> samples) : cost_(prior), samples_(samples) {
    LinkCost copy = prior;
    for (std::size_t i = 0; i < kCosts; ++i)
      scale_[i] = std::max(cost_at(copy, i), i < kLatencies ? kNoLatency : kNoByteCost);
    const bool pairs_only = std::all_of(samples.begin(), samples.end(),
                                        [](const Sample& sample) { return sample.ground.world == 2; });
    held_[kStep] = pairs_only;
  }

  LinkCost run() {
    LinkCost best = cost_;
    double least = std::numeric_limits<double>::infinity();
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<Equation> equations = linearise();
      if (distance_ < least) {
        least = distance_;
        best = cost_;
      }
      const std::array<double, kCosts> solution = solve(equations);
      for (std::size_t i = 0; i < kCosts; ++i) {
        double& cost = cost_at(cost_, i);
        const double most = std::max(cost, scale_[i] * kLeastShare) * kStride;
        cost = std::clamp(solution[i] * scale_[i], cost / kStride, most);
      }
    }
    for (std::size_t i = 0; i < kCosts; ++i) cost_at(best, i) = exact_cost(cost_at(best, i));
    return best;
  }

 private:
  std::vector<Equation> linearise() {
    std::vector<Equation> equations;
    distance_ = 0;
    for (const Sample& sample : samples_) {
      const double now = predicted(sample, cost_);
      const std::uint64_t side = larger_side(sample.algorithm->collective, sample.bytes, sample.ground.world);
      const auto regime = static_cast<std::size_t>(cost_.regime_of(side));
      Equation equation;
      for (std::size_t i = 0; i < kCosts; ++i) {
        if (i >= kLatencies && (i - kLatencies) / kByteCosts != regime) continue;
        LinkCost moved = cost_;
        const double by = std::max(cost_at(moved, i), scale_[i] * kLeastShare) * 1e-3;
        cost_at(moved, i) += by;
        equation.counts[i] = (predicted(sample, moved) - now) / by * scale_[i] / sample.seconds;
      }
      const double error = std::abs(now / sample.seconds - 1);
      equation.weight = error > kFar ? kFar / error : 1;
      distance_ += equation.weight * error * error;
      equations.push_back(equation);
    }
    return equations;
  }

  /// The costs, in units of `scale_`.
  std::array<double, kCosts> solve(const std::vector<Equation>& equations) const {
    std::array<std::array<double, kCosts>, kCosts> products{};
    std::array<double, kCosts> right{}, costs{};
    for (std::size_t i = 0; i < kCosts; ++i) {
      products[i][i] = right[i] = held_[i] ? kHeld : kPriorWeight;
      costs[i] = 1;
    }
    for (const Equation& equation : equations) {
      for (std::size_t i = 0; i < kCosts; ++i) {
        right[i] += equation.weight * equation.counts[i];
        for (std::size_t j = 0; j < kCosts; ++j)
          products[i][j] += equation.weight * equation.counts[i] * equation.counts[j];
      }
    }
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      for (std::size_t i = 0; i < kCosts; ++i) {
        double rest = right[i];
        for (std::size_t j = 0; j < kCosts; ++j) rest -= j == i ? 0 : products[i][j] * costs[j];
        costs[i] = std::max(0.0, rest / products[i][i]);
      }
    }
    return costs;
  }

  LinkCost cost_;
  std::span<const Sample> samples_;
  double distance_ = 0;  ///< Of the predictions by `cost_` from the samples.
  std::array<double, kCosts> scale_{};
  std::array<bool, kCosts> held_{};  ///< Stays as in the prior.
};

}  // namespace

double predicted(const Sample& sample, const LinkCost& cost) {
  return predict_uncorrected(cost, sample.ground, *sample.algorithm, sample.bytes);
}

LinkCost fit_link_cost(const LinkCost& prior, std::span<const Sample> samples) {
  return samples.empty() ? prior : Fit(prior, samples).run();
}

}  // namespace lockstep::internal
