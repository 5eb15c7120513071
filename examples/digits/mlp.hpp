// A multilayer perceptron: linear layers with rectifiers between them, softmax cross entropy at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/ddp.hpp"

namespace digits {

/// Not thread-safe. The parameters are its own; the gradients live where set_gradient says.
class Mlp {
 public:
  /// Layers between `widths`, at least two of them. The same weights for the same seed on every machine.
  Mlp(std::span<const std::size_t> widths, std::uint64_t seed);

  /// Weight and bias of each layer, from the first layer to the last. Valid for the network's life.
  std::vector<lockstep::Parameter> parameters();
  std::size_t parameter_count() const;
  /// Tells where gradient `index` of parameters() is to be written. Needed for all of them before backward().
  void set_gradient(std::size_t index, float* gradient) { gradients_[index] = gradient; }

  /// Logits of `batch` rows of widths.front() inputs, which must live until backward(). Valid until the next
  /// forward().
  std::span<const float> forward(const float* inputs, std::size_t batch);

  /// From the gradient of the loss by the logits of the last forward(), overwrites all gradients, from the
  /// last layer to the first, and calls ready(index) as soon as one is complete.
  void backward(std::span<const float> logits_gradient, const std::function<void(std::size_t)>& ready);

  /// Gradient descent with momentum: velocity = momentum * velocity + gradient; parameter -= rate * velocity.
  void step(float rate, float momentum);

 private:
  struct Layer {
    std::size_t inputs;
    std::size_t outputs;
    std::vector<float> weight;            // inputs x outputs, row-major.
    std::vector<float> bias;              // outputs.
    std::vector<float> outputs_of_batch;  // After the rectifier, which the last layer has not.
  };

  void backward_layer(std::size_t index, const std::vector<float>& delta);
  std::vector<float> input_delta(std::size_t index, const std::vector<float>& delta) const;
  std::vector<float>& values(std::size_t parameter);

  std::vector<Layer> layers_;
  std::vector<float*> gradients_;               // Two a layer: weight, bias.
  std::vector<std::vector<float>> velocities_;  // As gradients_.
  const float* inputs_ = nullptr;               // Of the last forward().
  std::size_t batch_ = 0;
};

/// Mean cross entropy of softmax(logits) against labels, and its gradient by the logits.
double softmax_cross_entropy(std::span<const float> logits, std::span<const int> labels,
                             std::vector<float>& gradient);

/// How many rows of logits are largest at their label.
std::size_t count_correct(std::span<const float> logits, std::span<const int> labels);

}  // namespace digits
