// A random training with a ShardedOptimizer, in phases: each is a group of its own, perhaps of another number
// of ranks and another stage, which goes on from the last checkpoint. All of it follows from a seed.
#pragma once

#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/support/draw.hpp"

namespace lockstep {

enum class Failure { none, marked_twice, not_marked, not_finite, left_out };
/// What ends a phase.
enum class End { good, aborted_in_backward, aborted_in_forward, optimizer_threw };

struct ShardedScript : testing::Draws {
  static constexpr std::size_t kPhases = 3, kSteps = 5;  // So many each.
  static constexpr double kMaxNorm = 6;

  // ---- the whole training
  bool adam() const { return draw_of(2, 1) == 0; }
  bool two_rules() const { return draw_of(2, 2) == 0; }
  bool average() const { return draw_of(4, 3) > 0; }
  bool weighted() const { return average() && draw_of(3, 4) == 0; }
  bool begins() const { return weighted() || draw_of(2, 5) == 0; }
  bool finds_unused() const { return draw_of(2, 6) == 0; }
  bool clips() const { return draw_of(3, 7) == 0; }
  std::size_t first_parameters() const { return 1 + draw_of(8, 8); }
  DataType type(std::size_t i) const {
    constexpr DataType kTypes[] = {DataType::f32, DataType::f32, DataType::f32, DataType::bf16,
                                   DataType::f16};
    return draw_of(2, 9) == 0 ? DataType::f32 : kTypes[draw_of(5, 10, i)];
  }
  std::vector<std::size_t> shape(std::size_t i) const {
    const std::size_t columns = draw_of(i % 3 == 0 ? 60 : 12, 11, i);
    if (draw_of(2, 12, i) == 0) return {columns};
    return {1 + draw_of(40, 13, i), columns};
  }
  /// Has a rule of its own: no decay.
  bool is_odd(const Parameter& parameter) const { return two_rules() && parameter.shape.size() < 2; }

  // ---- a phase
  int ranks(std::size_t phase) const { return 1 + static_cast<int>(draw_of(4, 30, phase)); }
  const char* transports(std::size_t phase) const { return draw_of(4, 31, phase) == 0 ? "tcp" : "auto"; }
  ZeroStage stage(std::size_t phase) const { return static_cast<ZeroStage>(1 + draw_of(2, 32, phase)); }
  bool values_as_views(std::size_t phase) const { return draw_of(2, 33, phase) == 0; }
  bool hook(std::size_t phase) const { return draw_of(4, 34, phase) == 0; }
  bool check_first(std::size_t phase) const { return draw_of(3, 35, phase) == 0; }
  End end(std::size_t phase) const {
    return ranks(phase) == 1 ? End::good : static_cast<End>(draw_of(4, 36, phase));
  }
  int culprit(std::size_t phase) const {
    return static_cast<int>(draw_of(static_cast<std::size_t>(ranks(phase)), 37, phase));
  }
  std::size_t end_turn(std::size_t phase) const { return draw_of(kSteps, 38, phase); }
  bool rolls_back(std::size_t phase, std::size_t turn) const { return draw_of(4, 39, phase, turn) == 0; }
  Failure failure(std::size_t phase, std::size_t turn) const {
    if (draw_of(3, 40, phase, turn) != 0) return Failure::none;
    const auto which = static_cast<Failure>(1 + draw_of(4, 41, phase, turn));
    return which == Failure::not_marked && finds_unused() ? Failure::not_finite : which;
  }

  // ---- a step, of any phase
  std::size_t joining(std::size_t step) const {
    return draw_of(5, 50, step) == 0 ? 1 + draw_of(3, 51, step) : 0;
  }
  std::size_t batches(std::size_t step) const { return 1 + draw_of(2, 52, step); }
  bool saves(std::size_t step) const { return draw_of(2, 53, step) == 0; }
  /// Rank 0 has data.
  std::uint64_t samples(int rank, std::size_t step) const {
    if (!begins() || rank == 0) return 2;
    return draw_of(4, 54, step, static_cast<std::size_t>(rank));
  }
  bool uses(int rank, std::size_t step, std::size_t batch, std::size_t i) const {
    return samples(rank, step) > 0 &&
           (!finds_unused() || draw_of(3, 55, step * 2 + batch, i, static_cast<std::size_t>(rank)) > 0);
  }
  double local(int rank, std::size_t step, std::size_t batches_so_far, std::size_t i, std::size_t e) const {
    double sum = 0;
    for (std::size_t b = 0; b < batches_so_far; ++b) {
      const std::size_t all = i * 3 + e + step * 5 + b * 2 + static_cast<std::size_t>(rank) * 11;
      if (uses(rank, step, b, i)) sum += static_cast<double>(all % 7) - 3;
    }
    return sum;
  }
  double reduced(std::size_t step, int ranks, std::size_t i, std::size_t e) const {
    double sum = 0, total = 0;
    for (int r = 0; r < ranks; ++r) {
      const double weight = weighted() ? static_cast<double>(samples(r, step)) : 1;
      sum += weight * local(r, step, batches(step), i, e);
      total += weight;
    }
    return average() ? sum / total : sum;
  }
};

/// A rule that throws when it is told to.
class Touchy final : public Optimizer {
 public:
  explicit Touchy(std::shared_ptr<const Optimizer> inner)
      : Optimizer(inner->rate()), inner_(std::move(inner)) {}
  std::string name() const override { return inner_->name(); }
  std::vector<std::string> slots() const override { return inner_->slots(); }
  void step(const OptimizerSlice& slice) const override {
    inner_->step(slice);
    if (throws && !std::exchange(threw, true)) throw std::runtime_error("out of patience");
  }
  bool throws = false;
  mutable bool threw = false;

 private:
  const std::shared_ptr<const Optimizer> inner_;
};

/// What one process alone would have: an optimizer of its own for each parameter.
struct Reference {
  static constexpr double kRate = 0.125, kMomentum = 0.5, kDecay = 0.0625;
  static constexpr double kBeta1 = 0.75, kBeta2 = 0.875, kEpsilon = 0.0625;

  struct Element {
    double value = 0, first = 0, second = 0;
  };
  std::vector<std::vector<Element>> tensors;
  std::vector<int> steps;

  static std::shared_ptr<const Optimizer> rule(bool adam, bool odd) {
    const double decay = odd ? 0 : kDecay;
    if (adam) return std::make_shared<AdamW>(kRate, decay, kBeta1, kBeta2, kEpsilon);
    return std::make_shared<SgdMomentum>(kRate, kMomentum, decay);
  }
  void step(Element& x, double gradient, int number, bool adam, bool odd) const {
    const double decay = odd ? 0 : kDecay;
    if (!adam) {
      x.first = kMomentum * x.first + gradient + decay * x.value;
      x.value -= kRate * x.first;
      return;
    }
    x.first = kBeta1 * x.first + (1 - kBeta1) * gradient;
    x.second = kBeta2 * x.second + (1 - kBeta2) * gradient * gradient;
    const double first = x.first / (1 - std::pow(kBeta1, number));
    const double second = x.second / (1 - std::pow(kBeta2, number));
    x.value -= kRate * (first / (std::sqrt(second) + kEpsilon) + decay * x.value);
  }
};

}  // namespace lockstep
