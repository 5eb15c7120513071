#include "examples/digits/mlp.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "examples/matrix/matrix.hpp"

namespace digits {
using examples::MatrixView;
using examples::multiply_add;
using examples::row_major;
using examples::transposed;

namespace {

/// Uniform in [-limit, limit), the variance that keeps activations behind rectifiers alive (He et al. 2015),
/// from a multiplicative congruential generator (Lehmer; the multiplier is Steele and Vigna's, 2021): the
/// same on every machine and standard library.
void fill_uniform(std::vector<float>& weights, float limit, std::uint64_t& state) {
  for (float& w : weights) {
    state *= 0xd1342543de82ef95u;
    const float unit = static_cast<float>(state >> 40) / static_cast<float>(1u << 24);
    w = (2.0f * unit - 1.0f) * limit;
  }
}

}  // namespace

Mlp::Mlp(std::span<const std::size_t> widths, std::uint64_t seed) {
  std::uint64_t state = 2 * seed + 1;  // The generator needs an odd state.
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
    Layer layer{widths[l],
                widths[l + 1],
                std::vector<float>(widths[l] * widths[l + 1]),
                std::vector<float>(widths[l + 1]),
                {}};
    fill_uniform(layer.weight, std::sqrt(6.0f / static_cast<float>(layer.inputs)), state);
    layers_.push_back(std::move(layer));
  }
  gradients_.resize(2 * layers_.size());
  for (std::size_t i = 0; i < gradients_.size(); ++i) velocities_.emplace_back(values(i).size());
}

std::vector<float>& Mlp::values(std::size_t parameter) {
  Layer& layer = layers_[parameter / 2];
  return parameter % 2 == 0 ? layer.weight : layer.bias;
}

std::vector<lockstep::Parameter> Mlp::parameters() {
  std::vector<lockstep::Parameter> list;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    Layer& layer = layers_[l];
    const std::string name = "layer" + std::to_string(l);
    list.push_back({name + ".weight",
                    lockstep::DataType::f32,
                    {layer.inputs, layer.outputs},
                    layer.weight.data(),
                    nullptr});
    list.push_back({name + ".bias", lockstep::DataType::f32, {layer.outputs}, layer.bias.data(), nullptr});
  }
  return list;
}

std::size_t Mlp::parameter_count() const {
  std::size_t count = 0;
  for (const Layer& layer : layers_) count += layer.weight.size() + layer.bias.size();
  return count;
}

std::span<const float> Mlp::forward(const float* inputs, std::size_t batch) {
  inputs_ = inputs;
  batch_ = batch;
  for (Layer& layer : layers_) {
    std::vector<float>& out = layer.outputs_of_batch;
    out.resize(batch * layer.outputs);
    for (std::size_t i = 0; i < batch; ++i) {
      std::copy(layer.bias.begin(), layer.bias.end(),
                out.begin() + static_cast<std::ptrdiff_t>(i * layer.outputs));
    }
    multiply_add(row_major(inputs, batch, layer.inputs),
                 row_major(layer.weight.data(), layer.inputs, layer.outputs), out.data());
    if (&layer != &layers_.back()) {
      for (float& value : out) value = std::max(value, 0.0f);
    }
    inputs = out.data();
  }
  return layers_.back().outputs_of_batch;
}

void Mlp::backward(std::span<const float> logits_gradient, const std::function<void(std::size_t)>& ready) {
  std::vector<float> delta(logits_gradient.begin(), logits_gradient.end());
  for (std::size_t l = layers_.size(); l-- > 0;) {
    backward_layer(l, delta);
    ready(2 * l + 1);
    ready(2 * l);
    if (l > 0) delta = input_delta(l, delta);
  }
}

/// Gradients of one layer from `delta`, the gradient by its outputs before the rectifier.
void Mlp::backward_layer(std::size_t index, const std::vector<float>& delta) {
  const Layer& layer = layers_[index];
  const float* inputs = index > 0 ? layers_[index - 1].outputs_of_batch.data() : inputs_;
  float* weight = gradients_[2 * index];
  float* bias = gradients_[2 * index + 1];
  std::fill_n(weight, layer.weight.size(), 0.0f);
  multiply_add(transposed(row_major(inputs, batch_, layer.inputs)),
               row_major(delta.data(), batch_, layer.outputs), weight);
  std::fill_n(bias, layer.bias.size(), 0.0f);
  for (std::size_t i = 0; i < batch_; ++i) {
    for (std::size_t j = 0; j < layer.outputs; ++j) bias[j] += delta[i * layer.outputs + j];
  }
}

/// The delta of the layer before: back through the weights, then through its rectifier.
std::vector<float> Mlp::input_delta(std::size_t index, const std::vector<float>& delta) const {
  const Layer& layer = layers_[index];
  std::vector<float> result(batch_ * layer.inputs, 0.0f);
  multiply_add(row_major(delta.data(), batch_, layer.outputs),
               transposed(row_major(layer.weight.data(), layer.inputs, layer.outputs)), result.data());
  const std::vector<float>& activations = layers_[index - 1].outputs_of_batch;
  for (std::size_t i = 0; i < result.size(); ++i) result[i] = activations[i] > 0.0f ? result[i] : 0.0f;
  return result;
}

void Mlp::step(float rate, float momentum) {
  for (std::size_t p = 0; p < gradients_.size(); ++p) {
    float* value = values(p).data();
    float* velocity = velocities_[p].data();
    const float* gradient = gradients_[p];
    for (std::size_t i = 0; i < velocities_[p].size(); ++i) {
      velocity[i] = momentum * velocity[i] + gradient[i];
      value[i] -= rate * velocity[i];
    }
  }
}

double softmax_cross_entropy(std::span<const float> logits, std::span<const int> labels,
                             std::vector<float>& gradient) {
  const std::size_t classes = logits.size() / labels.size();
  const float share = 1.0f / static_cast<float>(labels.size());
  gradient.resize(logits.size());
  double loss = 0.0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const float* row = logits.data() + i * classes;
    float* out = gradient.data() + i * classes;
    const float largest = *std::max_element(row, row + classes);  // Subtracted, so that exp cannot overflow.
    float sum = 0.0f;
    for (std::size_t j = 0; j < classes; ++j) sum += out[j] = std::exp(row[j] - largest);
    for (std::size_t j = 0; j < classes; ++j) out[j] *= share / sum;
    const auto label = static_cast<std::size_t>(labels[i]);
    out[label] -= share;
    loss += std::log(sum) - (row[label] - largest);
  }
  return loss / static_cast<double>(labels.size());
}

std::size_t count_correct(std::span<const float> logits, std::span<const int> labels) {
  const std::size_t classes = logits.size() / labels.size();
  std::size_t correct = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const float* row = logits.data() + i * classes;
    correct += std::max_element(row, row + classes) - row == labels[i] ? 1 : 0;
  }
  return correct;
}

}  // namespace digits
