// The layers of the transformer. Activations are rows, one for each position of each sequence, laid out row
// after row.
#pragma once

#include <string>
#include <vector>

#include "examples/gpt/random.hpp"
#include "examples/gpt/tensor.hpp"

namespace gpt {

class Layer {
 public:
  Layer() = default;
  Layer(const Layer&) = delete;  // Tensors are known by address.
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  /// Rows out for rows in; keeps what backward needs.
  virtual Floats forward(const Floats& input) = 0;
  /// From the gradient of the loss by the last output, writes those of the tensors and returns that by the
  /// input.
  virtual Floats backward(const Floats& delta) = 0;
  /// In the order in which forward uses them.
  virtual std::vector<Tensor*> tensors() = 0;
};

/// input * weight + bias.
class Linear : public Layer {
 public:
  Linear(const std::string& name, std::size_t inputs, std::size_t outputs, float deviation, Random& random);
  Floats forward(const Floats& input) override;
  Floats backward(const Floats& delta) override;
  std::vector<Tensor*> tensors() override { return {&weight_, &bias_}; }

 private:
  Tensor weight_;  // inputs x outputs.
  Tensor bias_;
  Floats input_;
};

/// Each row to mean 0 and variance 1, then scaled and shifted by column (Ba et al. 2016).
class LayerNorm : public Layer {
 public:
  LayerNorm(const std::string& name, std::size_t width);
  Floats forward(const Floats& input) override;
  Floats backward(const Floats& delta) override;
  std::vector<Tensor*> tensors() override { return {&scale_, &shift_}; }

 private:
  Tensor scale_;
  Tensor shift_;
  Floats normal_;             // The rows before scale and shift.
  Floats inverse_deviation_;  // One a row.
};

/// x * Phi(x) with the usual approximation of Phi (Hendrycks and Gimpel 2016).
class Gelu : public Layer {
 public:
  Floats forward(const Floats& input) override;
  Floats backward(const Floats& delta) override;
  std::vector<Tensor*> tensors() override { return {}; }

 private:
  Floats input_;
};

}  // namespace gpt
