// Optimizer: how values follow their gradients, element by element, so that any rank can step any run of
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/export.hpp"

namespace lockstep {

/// A run of elements to step. All spans have the same size and overlap nowhere.
struct OptimizerSlice {
  std::uint64_t step = 1;  ///< Counts from 1.
  std::span<float> values;
  std::span<const float> gradients;
  std::span<const std::span<float>> slots;  ///< One for each of Optimizer::slots(), zero before step 1.
};

/// The rule only: state belongs to the caller, who can keep it whole or in shards. Write your own by
/// deriving; an element must depend on its own value, gradient and slots alone. Not thread-safe.
class LOCKSTEP_API Optimizer {
 public:
  explicit Optimizer(double rate) : rate_(rate) {}
  virtual ~Optimizer() = default;

  /// The rule with the settings that all ranks must share, exactly: compared, and the rate with it, when a
  /// ShardedOptimizer is made.
  virtual std::string name() const = 0;
  /// Names of what is kept for each element, for checkpoints: {"momentum"}.
  virtual std::vector<std::string> slots() const = 0;
  /// Steps the run: changes its values and slots by its gradients and rate().
  virtual void step(const OptimizerSlice& slice) const = 0;

  double rate() const noexcept { return rate_; }
  /// For schedules: between steps, the same on all ranks.
  void set_rate(double rate) noexcept { rate_ = rate; }

 private:
  double rate_;
};

/// velocity = momentum * velocity + (gradient + decay * value); value -= rate * velocity.
class LOCKSTEP_API SgdMomentum final : public Optimizer {
 public:
  explicit SgdMomentum(double rate, double momentum = 0.9, double decay = 0.0)
      : Optimizer(rate), momentum_(momentum), decay_(decay) {}
  std::string name() const override;
  std::vector<std::string> slots() const override { return {"momentum"}; }
  void step(const OptimizerSlice& slice) const override;

 private:
  double momentum_, decay_;
};

/// AdamW (Loshchilov and Hutter 2019): Adam's first and second moments with bias correction, and a weight
/// decay that does not pass through them.
class LOCKSTEP_API AdamW final : public Optimizer {
 public:
  explicit AdamW(double rate, double decay = 0.01, double beta1 = 0.9, double beta2 = 0.999,
                 double epsilon = 1e-8)
      : Optimizer(rate), decay_(decay), beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}
  std::string name() const override;
  std::vector<std::string> slots() const override { return {"moment1", "moment2"}; }
  void step(const OptimizerSlice& slice) const override;

 private:
  double decay_, beta1_, beta2_, epsilon_;
};

}  // namespace lockstep
