// The layers of layer.hpp and attention.hpp in device memory, for batches of one size. Everything is
// enqueued.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "examples/device/device_floats.hpp"
#include "examples/gpt/device/compute.hpp"

namespace gpt {

using examples::device_floats;
using examples::DeviceFloats;

/// A tensor of the model in host memory, from which it gets name, shape and first values.
struct DeviceTensor {
  std::size_t index = 0;  ///< Among all.
  std::string name;
  std::vector<std::size_t> shape;
  std::size_t count = 0;
  DeviceFloats value;
  float* gradient = nullptr;  ///< Where somebody wants it; set before the first backward().
};

/// What all layers work with.
struct Bench {
  Compute& compute;
  lockstep::Stream stream;
  std::size_t rows;  ///< Of a batch: one for each position of each sequence.
};

/// Called when a tensor's gradient is enqueued.
using Ready = std::function<void(const DeviceTensor&)>;

/// Results are valid until the layer's next call.
class DeviceLayer {
 public:
  explicit DeviceLayer(const Bench& bench) : bench_(bench) {}
  virtual ~DeviceLayer() = default;
  virtual const float* forward(const float* input) = 0;
  virtual const float* backward(const float* delta, const Ready& ready) = 0;

 protected:
  const Bench bench_;
};

using Layers = std::vector<std::unique_ptr<DeviceLayer>>;

std::unique_ptr<DeviceLayer> make_linear(const Bench& bench, DeviceTensor& weight, DeviceTensor& bias);
std::unique_ptr<DeviceLayer> make_norm(const Bench& bench, DeviceTensor& scale, DeviceTensor& shift);
std::unique_ptr<DeviceLayer> make_gelu(const Bench& bench, std::size_t width);
std::unique_ptr<DeviceLayer> make_attention(const Bench& bench, const Heads& heads);
/// Its input and what `layers` make of it, added up; both `width` wide.
std::unique_ptr<DeviceLayer> make_residual(const Bench& bench, std::size_t width, Layers layers);

}  // namespace gpt
