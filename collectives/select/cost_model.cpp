#include "collectives/select/cost_model.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::internal {

std::string_view name_of(LinkClass link) {
  constexpr std::string_view kNames[] = {"inline", "staged", "registered", "tcp"};
  return kNames[static_cast<int>(link)];
}

LinkClass class_of(Medium medium) {
  switch (medium) {
    case Medium::domain_staged:
      return LinkClass::staged;
    case Medium::domain_registered:
    case Medium::domain_pulled:  // Never predicted: see PullTrials.
      return LinkClass::registered;
    case Medium::links:
      break;
  }
  return LinkClass::tcp;
}

int LinkCost::regime_of(std::uint64_t bytes) const {
  int index = 0;
  while (index + 1 < kRegimes && bytes > regimes[static_cast<std::size_t>(index)].up_to) ++index;
  return index;
}

MediumCost LinkCost::at(std::uint64_t bytes) const {
  const Regime& regime = regimes[static_cast<std::size_t>(regime_of(bytes))];
  MediumCost cost;
  cost.alpha = alpha;
  cost.sync = sync;
  cost.step = step;
  cost.call = call;
  cost.beta = regime.beta;
  cost.gamma = regime.gamma;
  cost.copy = regime.copy;
  return cost;
}

void Correction::add(int log2_bytes, double factor) {
  // 64ths: the same number after a trip through a text.
  points_[log2_bytes] = std::round(std::clamp(factor, kLeast, kMost) * 64) / 64;
}

double Correction::at(int log2_bytes) const {
  if (points_.empty()) return 1;
  const auto above = points_.lower_bound(log2_bytes);
  if (above == points_.begin()) return above->second;
  if (above == points_.end()) return std::prev(above)->second;
  const auto below = std::prev(above);
  const double share = static_cast<double>(log2_bytes - below->first) / (above->first - below->first);
  const double rise = (above->second - below->second) * share;
  return std::round((below->second + rise) * 64) / 64;
}

double exact_cost(double seconds) {
  constexpr double kUnit = 0x1p-52;  // A fifth of a femtosecond; a second still fits the 53 bits of a double.
  return std::round(seconds / kUnit) * kUnit;
}

}  // namespace lockstep::internal
