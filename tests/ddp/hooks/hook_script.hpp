// A random training whose gradients pass through a hook that keeps what it did not send, in phases: each is a
// group of its own, which goes on from the last checkpoint. All of it follows from a seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/support/draw.hpp"

namespace lockstep {

enum class Failure { none, marked_twice, not_marked, not_finite };

struct HookScript : testing::Draws {
  static constexpr std::size_t kPhases = 3, kSteps = 5;  // So many each.
  static constexpr double kRate = 0.25;

  // ---- the whole training
  bool sharded() const { return draw_of(2, 1) == 0; }
  /// What it sums up is an average at the end.
  bool local_sgd() const { return !sharded() && draw_of(10, 2) == 0; }
  bool average() const { return local_sgd() || draw_of(4, 3) > 0; }
  bool weighted() const { return !local_sgd() && average() && draw_of(3, 4) == 0; }
  bool begins() const { return weighted() || draw_of(2, 5) == 0; }
  bool finds_unused() const { return draw_of(2, 6) == 0; }
  bool is_static() const { return !sharded() && !finds_unused() && draw_of(3, 7) == 0; }
  bool threads() const { return draw_of(3, 8) == 0; }
  /// What waits in the ranks' hooks enters the next result as a sum, or as an average.
  bool sums() const { return !average() || weighted(); }

  std::shared_ptr<CommunicationHook> make_hook() const {
    constexpr DataType kTypes[] = {DataType::i8, DataType::f8e4m3, DataType::f8e5m2};
    constexpr double kShares[] = {0.01, 0.1, 0.5, 1};
    if (local_sgd())
      return std::make_shared<LocalSgd>(
          LocalSgdOptions{.start_step = 1 + draw_of(6, 10), .period = 1 + draw_of(5, 11)});
    switch (draw_of(4, 12)) {
      case 0:
        return make_quantised_hook(
            {.type = kTypes[draw_of(3, 13)], .block = std::size_t{4} << draw_of(8, 14)});
      case 1:
        return make_top_k_hook({.share = kShares[draw_of(4, 15)]});
      case 2:
        return make_half_hook(draw_of(2, 16) == 0 ? DataType::bf16 : DataType::f16);
      default:
        return make_power_sgd_hook({.rank = 1 + draw_of(5, 17),
                                    .start_step = 1 + draw_of(6, 18),
                                    .min_compression = 1 + static_cast<double>(draw_of(3, 19)) / 2,
                                    .warm_start = draw_of(3, 20) > 0});
    }
  }
  /// Of the largest sum of gradients so far. What the halves round away in a step they do not keep.
  double tolerance() const { return !local_sgd() && draw_of(4, 12) == 2 ? 0.02 : 5e-5; }

  // ---- a phase
  int ranks(std::size_t phase) const { return 2 + static_cast<int>(draw_of(3, 30, phase)); }
  const char* transports(std::size_t phase) const { return draw_of(4, 31, phase) == 0 ? "tcp" : "auto"; }
  ZeroStage stage(std::size_t phase) const { return static_cast<ZeroStage>(1 + draw_of(2, 32, phase)); }
  bool values_as_views(std::size_t phase) const { return draw_of(2, 33, phase) == 0; }
  bool views(std::size_t phase, int rank) const {
    return draw_of(2, 34, phase, draw_of(2, 35) == 0 ? 0 : static_cast<std::size_t>(rank)) == 0;
  }
  bool check_first(std::size_t phase) const { return draw_of(3, 36, phase) == 0; }
  /// The culprit's hook throws at this call in the phase; 0: at none.
  std::size_t throws_at(std::size_t phase) const {
    return draw_of(2, 37, phase) == 0 ? 1 + draw_of(draw_of(3, 46, phase) == 0 ? 10 : 80, 38, phase) : 0;
  }
  int culprit(std::size_t phase) const {
    return static_cast<int>(draw_of(static_cast<std::size_t>(ranks(phase)), 39, phase));
  }

  // ---- a step, of any phase
  static float initial(std::size_t i, std::size_t e) { return static_cast<float>((i + e) % 5); }
  std::size_t first_parameters() const { return 1 + draw_of(8, 50); }
  std::vector<std::size_t> shape(std::size_t i) const {
    const std::size_t columns = draw_of(i % 3 == 0 ? 60 : 12, 51, i);
    if (draw_of(3, 52, i) == 0) return {columns};
    return {1 + draw_of(40, 53, i), columns};
  }
  std::size_t joining(std::size_t step) const {
    return draw_of(6, 54, step) == 0 ? 1 + draw_of(2, 55, step) : 0;
  }
  bool freezes(std::size_t step) const { return !sharded() && draw_of(4, 56, step) == 0; }
  bool frozen(std::size_t step, std::size_t i) const { return i > 0 && draw_of(4, 57, step, i) == 0; }
  std::size_t batches(std::size_t step) const { return 1 + draw_of(2, 58, step); }
  bool saves(std::size_t step) const { return draw_of(3, 59, step) == 0; }
  bool rolls_back(std::size_t phase, std::size_t turn) const { return draw_of(6, 60, phase, turn) == 0; }
  /// Rank 0 has data.
  std::uint64_t samples(int rank, std::size_t step) const {
    if (!begins() || rank == 0) return 2;
    return draw_of(4, 61, step, static_cast<std::size_t>(rank));
  }
  Failure failure(std::size_t phase, std::size_t turn) const {
    if (draw_of(3, 62, phase, turn) != 0) return Failure::none;
    if (is_static()) return Failure::not_finite;
    const auto which = static_cast<Failure>(1 + draw_of(3, 63, phase, turn));
    return which == Failure::not_marked && finds_unused() ? Failure::not_finite : which;
  }
  bool uses(int rank, std::size_t step, std::size_t batch, std::size_t i) const {
    return samples(rank, step) > 0 &&
           (!finds_unused() || draw_of(3, 64, step * 2 + batch, i, static_cast<std::size_t>(rank)) > 0);
  }
  /// Of all magnitudes, and of some directions more than of others.
  double gradient(int rank, std::size_t step, std::size_t batch, std::size_t i, std::size_t e) const {
    const auto r = static_cast<std::size_t>(rank);
    const double noise = static_cast<double>(draw_of(2'001, 65, step * 2 + batch, i * 4 + r, e)) / 1'000 - 1;
    const double large = draw_of(40, 66, step, i, e) == 0 ? 20 : 1;
    return noise * large + std::sin(static_cast<double>(e + i)) * (1 + static_cast<double>(r));
  }
  /// Of the first micro-batches.
  double local(int rank, std::size_t n, std::size_t so_far, std::size_t i, std::size_t e) const {
    double sum = 0;
    for (std::size_t b = 0; b < so_far; ++b)
      if (uses(rank, n, b, i)) sum += gradient(rank, n, b, i, e);
    return sum;
  }
  double weight(int rank, std::size_t step, int ranks) const {
    if (!weighted()) return average() ? 1.0 / ranks : 1.0;
    double all = 0;
    for (int r = 0; r < ranks; ++r) all += static_cast<double>(samples(r, step));
    return static_cast<double>(samples(rank, step)) / all;
  }
};

/// What a training without ranks and hooks would have summed up by now.
struct Ledger {
  std::vector<std::vector<double>> due;
  double largest = 1;  // Of the sums of magnitudes.

  void follow(const HookScript& script, std::size_t step, int ranks, const std::vector<bool>& frozen) {
    double most = 0;
    for (std::size_t i = 0; i < due.size(); ++i) {
      for (std::size_t e = 0; !frozen[i] && e < due[i].size(); ++e) {
        double magnitude = 0;
        for (int r = 0; r < ranks; ++r) {
          const double part =
              script.weight(r, step, ranks) * script.local(r, step, script.batches(step), i, e);
          due[i][e] += part;
          magnitude += std::abs(part);
        }
        most = std::max(most, magnitude);
      }
    }
    largest += most;
  }
};

}  // namespace lockstep
