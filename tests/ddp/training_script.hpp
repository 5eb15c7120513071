// What happens in a random training of many steps, drawn alike by all ranks, and what one process alone would
// compute for it: micro-batches under no_sync, ranks without data, weights, unused parameters, static graphs,
// parameters that are frozen or join midway, and steps that fail and are repeated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "lockstep/types.hpp"
#include "tests/support/draw.hpp"

namespace lockstep::testing {

inline constexpr int kTrainers = 3;  ///< Ranks.

enum class Failure : std::uint8_t { none, marked_twice, not_marked, not_finite };

/// What happens in a training, as pure functions.
struct Script : Draws {
  bool is_static() const { return draw_of(3, 1) == 0; }
  bool finds_unused() const { return !is_static() && draw_of(2, 2) == 0; }
  bool weighted() const { return draw_of(3, 3) == 0; }
  bool begins() const { return weighted() || draw_of(2, 4) == 0; }
  bool hook() const { return draw_of(3, 5) == 0; }
  bool overlaps() const { return !hook() && draw_of(3, 6) == 0; }
  bool threads() const { return draw_of(3, 7) == 0; }
  bool views(int rank) const {
    return draw_of(2, 8, draw_of(2, 9) == 0 ? 0 : static_cast<std::size_t>(rank));
  }
  std::size_t bucket_bytes() const { return 1 + draw_of(3'000, 30); }
  std::size_t first_bucket_bytes() const { return 1 + draw_of(400, 31); }
  bool moves() const { return draw_of(2, 32) == 0; }  ///< The reducer may lay out its buckets anew.
  bool says_check_first() const { return draw_of(2, 33) == 0; }
  bool checks_first() const { return draw_of(2, 34) == 0; }
  std::size_t first_parameters() const { return 1 + draw_of(12, 10); }

  DataType type(std::size_t i) const {
    constexpr DataType kTypes[] = {DataType::f32, DataType::f32, DataType::bf16, DataType::f16,
                                   DataType::f64};
    return draw_of(3, 25) == 0 ? kTypes[draw_of(std::size(kTypes), 26, i)] : DataType::f32;
  }
  std::size_t elements(std::size_t i) const { return 1 + draw_of(i % 4 == 0 ? 900 : 40, 11, i); }
  std::size_t joining(std::size_t step) const {
    return draw_of(5, 12, step) == 0 ? 1 + draw_of(3, 13, step) : 0;
  }
  bool freezes(std::size_t step) const { return draw_of(4, 14, step) == 0; }
  bool frozen(std::size_t step, std::size_t i) const { return draw_of(3, 15, step, i) == 0; }
  std::size_t batches(std::size_t step) const { return 1 + draw_of(3, 16, step); }
  /// A rank that has data in any case.
  int with_data(std::size_t step) const { return static_cast<int>(draw_of(kTrainers, 17, step)); }
  std::size_t samples(int rank, std::size_t step) const {
    if (rank == with_data(step) || !begins()) return 2;
    return draw_of(3, 18, step, static_cast<std::size_t>(rank)) * 2;
  }
  Failure failure(std::size_t step) const {
    if (draw_of(3, 19, step) != 0) return Failure::none;
    if (is_static()) return Failure::not_finite;
    const auto which = static_cast<Failure>(1 + draw_of(3, 20, step));
    return which == Failure::not_marked && finds_unused() ? Failure::not_finite : which;
  }
  /// How often rank marks i in a micro-batch.
  std::size_t marks(int rank, std::size_t step, std::size_t batch, std::size_t i) const {
    const auto r = static_cast<std::size_t>(rank);
    if (batch + 1 < batches(step)) return draw_of(3, 21, step * 4 + batch, i, r);
    if (is_static()) return draw_of(3, 22, i, r);
    return finds_unused() ? draw_of(2, 23, step, i, r) : 1;
  }
  /// Others that are not marked wait() finds.
  bool says_unused(int rank, std::size_t step, std::size_t batch, std::size_t i) const {
    return finds_unused() && marks(rank, step, batch, i) == 0 &&
           draw_of(2, 24, step * 4 + batch, i, static_cast<std::size_t>(rank)) == 0;
  }
  float gradient(int rank, std::size_t step, std::size_t batch, std::size_t i, std::size_t e) const {
    return static_cast<float>((i * 3 + e + step * 5 + batch * 2 + static_cast<std::size_t>(rank) * 11) % 17) -
           8;
  }
  bool uses(int rank, std::size_t step, std::size_t i) const {
    if (samples(rank, step) == 0) return false;
    for (std::size_t b = 0; b < batches(step); ++b)
      if (marks(rank, step, b, i) > 0) return true;
    return false;
  }
  /// What used() says.
  bool counts_as_used(std::size_t step, std::size_t i) const {
    bool used = !finds_unused() && !is_static();
    for (int r = 0; r < kTrainers; ++r) used = used || uses(r, step, i);
    return used;
  }
  double local(int rank, std::size_t step, std::size_t i, std::size_t e) const {
    double sum = 0;
    for (std::size_t b = 0; samples(rank, step) > 0 && b < batches(step); ++b)
      if (marks(rank, step, b, i) > 0) sum += gradient(rank, step, b, i, e);
    return sum;
  }
  double average(std::size_t step, std::size_t i, std::size_t e) const {
    double sum = 0, total = 0;
    for (int r = 0; r < kTrainers; ++r) {
      const double weight = weighted() ? static_cast<double>(samples(r, step)) : 1;
      sum += weight * local(r, step, i, e);
      total += weight;
    }
    return sum / total;
  }
};

}  // namespace lockstep::testing
