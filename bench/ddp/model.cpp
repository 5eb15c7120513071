#include "bench/ddp/model.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "examples/matrix/matrix.hpp"

namespace lockstep::bench {
namespace {

using examples::multiply_add;
using examples::row_major;
using examples::transposed;

constexpr std::size_t kLayers = 24;     // As a usual transformer has; 25 M parameters are then 1024 wide.
constexpr std::size_t kWidthStep = 16;  // Whole vector registers.

std::size_t width_for(std::size_t parameters) {
  const double width = std::sqrt(static_cast<double>(parameters) / kLayers);
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(width / kWidthStep))) * kWidthStep;
}

/// Values that look random and keep activations near 1 through any number of layers.
void fill(std::vector<float>& values, float limit, std::size_t seed) {
  std::uint32_t state = static_cast<std::uint32_t>(2 * seed + 1);
  for (float& v : values) {
    state = state * 747796405u + 2891336453u;  // Congruential; multiplier as in PCG (O'Neill 2014).
    v = (static_cast<float>(state >> 8) / static_cast<float>(1u << 23) - 1.0f) * limit;
  }
}

}  // namespace

Model::Model(std::size_t parameters, std::size_t batch)
    : width_(width_for(parameters)),
      batch_(batch),
      own_weights_(kLayers, std::vector<float>(width_ * width_)),
      weights_(kLayers),
      activations_(kLayers + 1, std::vector<float>(batch * width_)),
      gradients_(kLayers) {
  for (std::size_t l = 0; l < kLayers; ++l) {
    fill(own_weights_[l], std::sqrt(6.0f / static_cast<float>(width_)), l);
    weights_[l] = own_weights_[l].data();
  }
  fill(activations_[0], 1.0f, kLayers);
}

std::vector<Parameter> Model::parameters() {
  std::vector<Parameter> list;
  for (std::size_t l = 0; l < layers(); ++l)
    list.push_back({"layer" + std::to_string(l), DataType::f32, {width_, width_}, weights_[l], nullptr});
  return list;
}

void Model::set_weight(std::size_t layer, float* weight) {
  weights_[layer] = weight;
  own_weights_[layer] = std::vector<float>();  // Frees the memory, as {} would not.
}

void Model::forward(const std::function<void(std::size_t)>& before) {
  for (std::size_t l = 0; l < layers(); ++l) {
    before(l);
    std::vector<float>& out = activations_[l + 1];
    std::fill(out.begin(), out.end(), 0.0f);
    multiply_add(row_major(activations_[l].data(), batch_, width_), row_major(weights_[l], width_, width_),
                 out.data());
    for (float& value : out) value = std::max(value, 0.0f);
  }
}

void Model::backward(const std::function<void(std::size_t)>& ready) {
  std::vector<float> delta = activations_.back();  // As of a loss of half the squares.
  for (std::size_t l = layers(); l-- > 0;) {
    std::fill_n(gradients_[l], width_ * width_, 0.0f);
    const auto by_output = row_major(delta.data(), batch_, width_);
    multiply_add(transposed(row_major(activations_[l].data(), batch_, width_)), by_output, gradients_[l]);
    ready(l);
    if (l == 0) break;
    std::vector<float> by_input(batch_ * width_);
    multiply_add(by_output, transposed(row_major(weights_[l], width_, width_)), by_input.data());
    for (std::size_t i = 0; i < by_input.size(); ++i)
      by_input[i] = activations_[l][i] > 0.0f ? by_input[i] : 0.0f;
    delta = std::move(by_input);
  }
}

void Model::step() {
  for (std::size_t l = 0; l < layers(); ++l) step(l);
}

void Model::step(std::size_t layer) {
  volatile float rate_to_be = 0.0f;  // Keeps the loop: the compiler must not see that it changes nothing.
  const float rate = rate_to_be;
  float* weight = weights_[layer];
  const float* gradient = gradients_[layer];
  for (std::size_t i = 0; i < width_ * width_; ++i) weight[i] -= rate * gradient[i];
}

}  // namespace lockstep::bench
