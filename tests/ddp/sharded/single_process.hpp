// The reference of ShardedOptimizer's tests: one process that has all gradients.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lockstep/ddp/optimizer.hpp"
#include "tests/ddp/model.hpp"

namespace lockstep::testing {

using Rule = std::shared_ptr<const Optimizer>;

/// What one process computes from the average of the gradients: exact, as that of whole numbers by 2 or 4
/// ranks is.
class SingleProcess {
 public:
  SingleProcess(const Model& model, const Rule& optimizer)
      : SingleProcess(model, std::vector<Rule>(model.tensors(), optimizer)) {}
  SingleProcess(const Model& model, std::vector<Rule> optimizers) : optimizers_(std::move(optimizers)) {
    for (std::size_t i = 0; i < model.tensors(); ++i) {
      values_.emplace_back(model.elements(i));
      slots_.emplace_back(optimizers_[i]->slots().size(), std::vector<float>(model.elements(i)));
    }
  }
  void step(int ranks, std::size_t step, float scale = 1) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      std::vector<float> gradient(values_[i].size());
      for (std::size_t e = 0; e < gradient.size(); ++e)
        gradient[e] = summed_gradient(ranks, step, i, e) / static_cast<float>(ranks) * scale;
      std::vector<std::span<float>> slots(slots_[i].begin(), slots_[i].end());
      optimizers_[i]->step({step + 1, values_[i], gradient, slots});
    }
  }
  const std::vector<float>& values(std::size_t i) const { return values_[i]; }

 private:
  const std::vector<Rule> optimizers_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<std::vector<float>>> slots_;
};

}  // namespace lockstep::testing
