#include "examples/digits/device/device_mlp.hpp"

#include "lockstep/device_runtime.hpp"

namespace digits {

DeviceMlp::DeviceMlp(Mlp& start, std::size_t batch, int device, lockstep::Stream stream, Compute& compute)
    : compute_(compute), parameters_(start.parameters()), gradients_(parameters_.size()) {
  const auto filled = [&](const void* values, std::size_t count) {
    DeviceFloats there = device_floats(count, device);
    lockstep::device::copy(there.get(), values, count * sizeof(float), stream);
    return there;
  };
  const auto zeros = [&](std::size_t count) {
    DeviceFloats there = device_floats(count, device);
    lockstep::device::fill(there.get(), 0, count * sizeof(float), stream);
    return there;
  };
  for (std::size_t p = 0; p < parameters_.size(); p += 2) {
    lockstep::Parameter &weight = parameters_[p], &bias = parameters_[p + 1];
    const std::size_t inputs = weight.shape[0], outputs = weight.shape[1];
    layers_.push_back({inputs, outputs, filled(weight.value, inputs * outputs), filled(bias.value, outputs),
                       zeros(inputs * outputs), zeros(outputs), zeros(batch * outputs),
                       zeros(batch * outputs)});
    weight.value = layers_.back().weight.get();
    bias.value = layers_.back().bias.get();
  }
  lockstep::device::synchronize(stream);
}

const float* DeviceMlp::forward(const float* inputs, std::size_t rows) {
  inputs_ = inputs;
  rows_ = rows;
  for (const Layer& layer : layers_) {
    float* const out = layer.activations.get();
    compute_.multiply({inputs, rows, layer.inputs}, {layer.weight.get(), layer.inputs, layer.outputs}, out);
    compute_.add_bias(out, layer.bias.get(), rows, layer.outputs, &layer != &layers_.back());
    inputs = out;
  }
  return inputs;
}

void DeviceMlp::backward(const int* labels, float* losses, const std::function<void(std::size_t)>& ready) {
  const Layer& last = layers_.back();
  compute_.softmax(last.activations.get(), labels, rows_, last.outputs, last.delta.get(), losses);
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const Layer& layer = layers_[l];
    const float* const inputs = l > 0 ? layers_[l - 1].activations.get() : inputs_;
    const DeviceMatrix delta{layer.delta.get(), rows_, layer.outputs};
    compute_.sum_rows(delta.data, rows_, layer.outputs, gradients_[2 * l + 1]);
    ready(2 * l + 1);
    compute_.multiply({inputs, rows_, layer.inputs, true}, delta, gradients_[2 * l]);
    ready(2 * l);
    if (l == 0) return;
    float* const before = layers_[l - 1].delta.get();
    compute_.multiply(delta, {layer.weight.get(), layer.inputs, layer.outputs, true}, before);
    compute_.mask(before, inputs, rows_ * layer.inputs);
  }
}

void DeviceMlp::step(float rate, float momentum) {
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    compute_.descend(layer.weight.get(), layer.weight_velocity.get(), gradients_[2 * l],
                     layer.inputs * layer.outputs, rate, momentum);
    compute_.descend(layer.bias.get(), layer.bias_velocity.get(), gradients_[2 * l + 1], layer.outputs, rate,
                     momentum);
  }
}

}  // namespace digits
