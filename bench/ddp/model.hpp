// A stack of square linear layers with rectifiers between them: the compute of a training step without a
// meaning. What it multiplies and how often is that of a real network of this size; that is all a measurement
// of overlap needs.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep::bench {

/// Rounds before the first that counts: memory is touched, connections find their rate.
inline constexpr std::size_t kWarmUp = 2;

/// One weight matrix a layer. Single-threaded.
class Model {
 public:
  /// About `parameters` in all; `batch` rows pass through at a time.
  Model(std::size_t parameters, std::size_t batch);

  std::vector<Parameter> parameters();
  std::size_t parameter_count() const { return layers() * width_ * width_; }
  std::size_t layers() const { return weights_.size(); }
  std::size_t width() const { return width_; }
  float* weight(std::size_t layer) const { return weights_[layer]; }
  /// Somewhere else, where the values are by now.
  void set_weight(std::size_t layer, float* weight);
  void set_gradient(std::size_t layer, float* gradient) { gradients_[layer] = gradient; }

  /// Calls before(layer) when it is about to read the layer's weights.
  void forward(const std::function<void(std::size_t)>& before = [](std::size_t) {});
  /// From the last layer to the first; calls ready(layer) when its gradient is complete.
  void backward(const std::function<void(std::size_t)>& ready);
  /// Gradient descent at a rate of 0: costs what any rate costs, and steps without synchronisation leave the
  /// replicas equal.
  void step();
  void step(std::size_t layer);

 private:
  std::size_t width_, batch_;
  std::vector<std::vector<float>> own_weights_;
  std::vector<float*> weights_;
  std::vector<std::vector<float>> activations_;  // Inputs of each layer; then the outputs of the last.
  std::vector<float*> gradients_;
};

}  // namespace lockstep::bench
