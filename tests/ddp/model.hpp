// A model to reduce: tensors whose gradients are small whole numbers, so that averages are exact in any order
// of summation.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep {

/// f32 tensors, from a seed; one rank's copy.
class Model {
 public:
  Model(std::size_t tensors, unsigned seed) {
    std::mt19937 random(seed);
    for (std::size_t i = 0; i < tensors; ++i) {
      const std::vector<std::size_t> shape{1 + random() % 40, random() % 30};
      values_.emplace_back(shape[0] * shape[1]);
      gradients_.emplace_back(values_.back().size());
      list_.push_back({"tensor" + std::to_string(i), DataType::f32, shape, values_[i].data(), nullptr});
      list_with_gradients_.push_back(list_.back());
      list_with_gradients_.back().gradient = gradients_[i].data();
    }
  }

  /// With memory for gradients where these are left to the caller.
  std::vector<Parameter>& list(const ReducerOptions& options = {}) {
    return options.gradients_as_views ? list_ : list_with_gradients_;
  }
  std::vector<Parameter>& list(ZeroStage stage) {
    return stage == ZeroStage::gradients ? list_with_gradients_ : list_;
  }
  std::size_t tensors() const { return list_.size(); }
  std::size_t elements(std::size_t i) const { return values_[i].size(); }
  std::vector<float>& values(std::size_t i) { return values_[i]; }

 private:
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<float>> gradients_;
  std::vector<Parameter> list_, list_with_gradients_;
};

/// What `rank` computes for element `e` of tensor `i` in `step`.
inline float local_gradient(int rank, std::size_t step, std::size_t i, std::size_t e) {
  return static_cast<float>((static_cast<std::size_t>(rank) + 1) * (i + step) + e % 13);
}

/// Its sum over `ranks` ranks.
inline float summed_gradient(int ranks, std::size_t step, std::size_t i, std::size_t e) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += local_gradient(r, step, i, e);
  return sum;
}

inline void write_gradient(Reducer& reducer, const Model& model, std::size_t i, int rank, std::size_t step) {
  auto* gradient = static_cast<float*>(reducer.gradient(i));
  for (std::size_t e = 0; e < model.elements(i); ++e) gradient[e] = local_gradient(rank, step, i, e);
}

}  // namespace lockstep
