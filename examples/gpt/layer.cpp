#include "examples/gpt/layer.hpp"

#include <algorithm>
#include <cmath>

#include "examples/matrix/matrix.hpp"

namespace gpt {

using examples::multiply_add;
using examples::row_major;
using examples::transposed;

Linear::Linear(const std::string& name, std::size_t inputs, std::size_t outputs, float deviation,
               Random& random)
    : weight_(name + ".weight", {inputs, outputs}), bias_(name + ".bias", {outputs}) {
  random.fill(weight_.value, deviation);
}

Floats Linear::forward(const Floats& input) {
  input_ = input;
  const std::size_t inputs = weight_.shape[0], outputs = weight_.shape[1], rows = input.size() / inputs;
  Floats output;
  output.reserve(rows * outputs);
  for (std::size_t r = 0; r < rows; ++r) output.insert(output.end(), bias_.value.begin(), bias_.value.end());
  multiply_add(row_major(input.data(), rows, inputs), row_major(weight_.value.data(), inputs, outputs),
               output.data());
  return output;
}

Floats Linear::backward(const Floats& delta) {
  const std::size_t inputs = weight_.shape[0], outputs = weight_.shape[1], rows = delta.size() / outputs;
  const auto by_output = row_major(delta.data(), rows, outputs);
  std::fill(weight_.gradient.begin(), weight_.gradient.end(), 0.0f);
  multiply_add(transposed(row_major(input_.data(), rows, inputs)), by_output, weight_.gradient.data());
  std::fill(bias_.gradient.begin(), bias_.gradient.end(), 0.0f);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < outputs; ++o) bias_.gradient[o] += delta[r * outputs + o];
  }
  Floats by_input(rows * inputs);
  multiply_add(by_output, transposed(row_major(weight_.value.data(), inputs, outputs)), by_input.data());
  return by_input;
}

LayerNorm::LayerNorm(const std::string& name, std::size_t width)
    : scale_(name + ".scale", {width}), shift_(name + ".shift", {width}) {
  std::fill(scale_.value.begin(), scale_.value.end(), 1.0f);
}

Floats LayerNorm::forward(const Floats& input) {
  constexpr float kEpsilon = 1e-5f;  // A constant row stays finite.
  const std::size_t width = scale_.value.size(), rows = input.size() / width;
  normal_.resize(input.size());
  inverse_deviation_.resize(rows);
  Floats output(input.size());
  for (std::size_t r = 0; r < rows; ++r) {
    const float* x = &input[r * width];
    float mean = 0, variance = 0;
    for (std::size_t c = 0; c < width; ++c) mean += x[c] / static_cast<float>(width);
    for (std::size_t c = 0; c < width; ++c)
      variance += (x[c] - mean) * (x[c] - mean) / static_cast<float>(width);
    inverse_deviation_[r] = 1.0f / std::sqrt(variance + kEpsilon);
    for (std::size_t c = 0; c < width; ++c) {
      const std::size_t i = r * width + c;
      normal_[i] = (x[c] - mean) * inverse_deviation_[r];
      output[i] = normal_[i] * scale_.value[c] + shift_.value[c];
    }
  }
  return output;
}

/// The normal row n depends on x also through mean and deviation, so that by x the gradient is that by n
/// without its part along the constant row and its part along n, over the deviation.
Floats LayerNorm::backward(const Floats& delta) {
  const std::size_t width = scale_.value.size(), rows = delta.size() / width;
  std::fill(scale_.gradient.begin(), scale_.gradient.end(), 0.0f);
  std::fill(shift_.gradient.begin(), shift_.gradient.end(), 0.0f);
  Floats by_input(delta.size());
  for (std::size_t r = 0; r < rows; ++r) {
    const float* d = &delta[r * width];
    const float* normal = &normal_[r * width];
    float mean = 0, along = 0;  // Of the gradient by the normal row.
    for (std::size_t c = 0; c < width; ++c) {
      scale_.gradient[c] += d[c] * normal[c];
      shift_.gradient[c] += d[c];
      mean += d[c] * scale_.value[c] / static_cast<float>(width);
      along += d[c] * scale_.value[c] * normal[c] / static_cast<float>(width);
    }
    for (std::size_t c = 0; c < width; ++c) {
      by_input[r * width + c] = (d[c] * scale_.value[c] - mean - normal[c] * along) * inverse_deviation_[r];
    }
  }
  return by_input;
}

namespace {

constexpr float kRootTwoOverPi = 0.7978845608f;
constexpr float kCubic = 0.044715f;

float inner_tanh(float x) { return std::tanh(kRootTwoOverPi * (x + kCubic * x * x * x)); }

}  // namespace

Floats Gelu::forward(const Floats& input) {
  input_ = input;
  Floats output(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) output[i] = 0.5f * input[i] * (1.0f + inner_tanh(input[i]));
  return output;
}

Floats Gelu::backward(const Floats& delta) {
  Floats by_input(delta.size());
  for (std::size_t i = 0; i < delta.size(); ++i) {
    const float x = input_[i], t = inner_tanh(x);
    const float slope = kRootTwoOverPi * (1.0f + 3.0f * kCubic * x * x);
    by_input[i] = delta[i] * 0.5f * (1.0f + t + x * (1.0f - t * t) * slope);
  }
  return by_input;
}

}  // namespace gpt
