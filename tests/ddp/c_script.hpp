// What happens in a random training through the C API, as pure functions of a seed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/draw.hpp"

namespace lockstep {

inline constexpr std::size_t kTrainingSteps = 6;

enum class Failure { none, marked_twice, not_marked, not_finite };
enum class End { good, aborted, freed, freed_after_comm };

struct CScript : testing::Draws {
  int ranks() const { return 1 + static_cast<int>(draw_of(4, 1)); }
  const char* transports() const { return draw_of(4, 2) == 0 ? "tcp" : "auto"; }
  bool sums() const { return draw_of(3, 3) == 0; }
  bool weighted() const { return !sums() && draw_of(3, 4) == 0; }
  bool begins() const { return weighted() || draw_of(2, 5) == 0; }
  bool finds_unused() const { return draw_of(2, 6) == 0; }
  bool is_static() const { return !finds_unused() && draw_of(3, 7) == 0; }
  bool halves() const { return draw_of(3, 8) == 0; }
  bool overlaps() const { return !halves() && draw_of(3, 9) == 0; }
  int check_first() const { return static_cast<int>(draw_of(3, 10)) - 1; }
  bool keeps(int rank) const { return draw_of(2, 11, static_cast<std::size_t>(rank)) == 0; }
  std::size_t elements(std::size_t i) const { return draw_of(i % 3 == 0 ? 900 : 30, 12, i); }
  std::size_t joining(std::size_t step) const {
    if (step == 0) return 1 + draw_of(6, 13);
    return draw_of(4, 14, step) == 0 ? 1 + draw_of(3, 15, step) : 0;
  }
  std::size_t batches(std::size_t step) const { return 1 + draw_of(3, 16, step); }
  /// Rank 0 has data.
  std::uint64_t samples(int rank, std::size_t step) const {
    if (!begins() || rank == 0) return 2;
    return draw_of(4, 17, step, static_cast<std::size_t>(rank));
  }
  bool uses(int rank, std::size_t step, std::size_t batch, std::size_t i) const {
    return samples(rank, step) > 0 &&
           (!finds_unused() || draw_of(3, 18, step * 4 + batch, i, static_cast<std::size_t>(rank)) > 0);
  }
  Failure failure(std::size_t step) const {
    if (draw_of(3, 19, step) != 0) return Failure::none;
    if (is_static()) return Failure::not_finite;
    const auto which = static_cast<Failure>(1 + draw_of(3, 20, step));
    return which == Failure::not_marked && finds_unused() ? Failure::not_finite : which;
  }
  /// Of the calls that create or add: whose are wrong before all make them right.
  bool errs_first(std::size_t step) const { return draw_of(3, 21, step) == 0; }
  int odd(std::size_t step) const {
    return static_cast<int>(draw_of(static_cast<std::size_t>(ranks()), 22, step));
  }
  End end() const { return ranks() == 1 ? End::good : static_cast<End>(draw_of(4, 23)); }

  float gradient(int rank, std::size_t step, std::size_t batch, std::size_t i, std::size_t e) const {
    const std::size_t all = i * 3 + e + step * 5 + batch * 2 + static_cast<std::size_t>(rank) * 11;
    return static_cast<float>(all % 17) - 8;
  }
  double local(int rank, std::size_t step, std::size_t batches, std::size_t i, std::size_t e) const {
    double sum = 0;
    for (std::size_t b = 0; b < batches; ++b)
      if (uses(rank, step, b, i)) sum += gradient(rank, step, b, i, e);
    return sum;
  }
  double reduced(std::size_t step, std::size_t i, std::size_t e) const {
    double sum = 0, total = 0;
    for (int r = 0; r < ranks(); ++r) {
      const double weight = weighted() ? static_cast<double>(samples(r, step)) : 1;
      sum += weight * local(r, step, batches(step), i, e);
      total += weight;
    }
    return sums() ? sum : sum / total;
  }
};

}  // namespace lockstep
