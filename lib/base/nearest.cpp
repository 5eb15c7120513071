#include "lib/base/nearest.hpp"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace lockstep::internal {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  // row[j] is the distance of the first i characters of a to the first j of b; only one row is kept.
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  const auto closer = [word](std::string_view x, std::string_view y) {
    return edit_distance(word, x) < edit_distance(word, y);
  };
  const auto best = std::min_element(candidates.begin(), candidates.end(), closer);
  return best == candidates.end() ? std::string_view() : *best;
}

}  // namespace lockstep::internal
