// The network of mlp.hpp in device memory: the same weights at the start, the same arithmetic, enqueued.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "examples/device/device_floats.hpp"
#include "examples/digits/device/compute.hpp"
#include "examples/digits/mlp.hpp"

namespace digits {

using examples::device_floats;
using examples::DeviceFloats;

/// Not thread-safe. Works on one stream; gradients live where set_gradient says.
class DeviceMlp {
 public:
  /// Batches have at most `batch` rows. Copies `start`'s weights: that may take until the stream has passed.
  DeviceMlp(Mlp& start, std::size_t batch, int device, lockstep::Stream stream, Compute& compute);

  /// Values in device memory. Valid for the network's life.
  const std::vector<lockstep::Parameter>& parameters() const { return parameters_; }
  void set_gradient(std::size_t index, float* gradient) { gradients_[index] = gradient; }

  /// Logits of `rows` inputs, in device memory as these.
  const float* forward(const float* inputs, std::size_t rows);
  /// Of the last forward(): the loss of each row, and all gradients, from the last layer to the first; calls
  /// ready(index) when one is enqueued.
  void backward(const int* labels, float* losses, const std::function<void(std::size_t)>& ready);
  void step(float rate, float momentum);

 private:
  struct Layer {
    std::size_t inputs, outputs;
    DeviceFloats weight, bias, weight_velocity, bias_velocity;
    DeviceFloats activations, delta;  // Of a batch: outputs after the rectifier, and the gradient by them.
  };

  Compute& compute_;
  std::vector<Layer> layers_;
  std::vector<lockstep::Parameter> parameters_;
  std::vector<float*> gradients_;
  const float* inputs_ = nullptr;
  std::size_t rows_ = 0;
};

}  // namespace digits
