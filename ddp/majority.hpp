// Whom to blame when ranks differ: those that are not as most ranks are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

namespace lockstep::internal {

/// The lowest rank that has what most ranks have: a single one that deviates is then named, even when it is
/// rank 0. `of_ranks` is not empty.
template <typename T>
std::size_t majority_rank(std::span<const T> of_ranks) {
  std::size_t best = 0;
  std::ptrdiff_t most = 0;
  for (std::size_t r = 0; r < of_ranks.size(); ++r) {
    const auto equal = std::count(of_ranks.begin(), of_ranks.end(), of_ranks[r]);
    if (equal <= most) continue;
    best = r;
    most = equal;
  }
  return best;
}

}  // namespace lockstep::internal
