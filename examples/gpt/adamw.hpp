// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
#pragma once

#include "examples/gpt/tensor.hpp"

namespace gpt {

struct AdamWOptions {
  float rate = 3e-3f;
  float beta1 = 0.9f;   ///< Memory of the gradient's mean.
  float beta2 = 0.99f;  ///< Memory of the gradient's square.
  float epsilon = 1e-8f;
  float decay = 0.01f;  ///< Of matrices alone: biases and norms are left as they are.
};

class AdamW {
 public:
  /// The tensors must outlive the optimizer.
  AdamW(std::vector<Tensor*> tensors, const AdamWOptions& options);
  /// Moves every tensor by its gradient.
  void step();

 private:
  struct Moments {
    Floats mean, square;
  };
  std::vector<Tensor*> tensors_;
  std::vector<Moments> moments_;  // One for each tensor.
  AdamWOptions options_;
  int steps_ = 0;
};

}  // namespace gpt
