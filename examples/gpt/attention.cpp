#include "examples/gpt/attention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpt {
namespace {

float dot(const float* a, const float* b, std::size_t n) { return std::inner_product(a, a + n, b, 0.0f); }

void add_scaled(float* to, float factor, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

void softmax(float* scores, std::size_t n) {
  const float largest = *std::max_element(scores, scores + n);
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += scores[i] = std::exp(scores[i] - largest);
  for (std::size_t i = 0; i < n; ++i) scores[i] /= sum;
}

}  // namespace

CausalAttention::CausalAttention(std::size_t width, std::size_t heads, std::size_t length)
    : width_(width),
      heads_(heads),
      length_(length),
      depth_(width / heads),
      scale_(1.0f / std::sqrt(static_cast<float>(depth_))) {}

Floats CausalAttention::forward(const Floats& input) {
  input_ = input;
  const std::size_t sequences = input.size() / (3 * width_ * length_);
  weights_.resize(sequences * heads_ * length_ * length_);
  Floats output(input.size() / 3);
  for (std::size_t s = 0; s < sequences; ++s) {
    for (std::size_t h = 0; h < heads_; ++h) attend(s, h, output);
  }
  return output;
}

void CausalAttention::attend(std::size_t sequence, std::size_t head, Floats& output) {
  const std::size_t first = sequence * length_;
  for (std::size_t at = 0; at < length_; ++at) {
    const float* q = &input_[place(query, first + at, head)];
    float* weights = &weights_[weights_of(sequence, head, at)];
    for (std::size_t to = 0; to <= at; ++to)
      weights[to] = scale_ * dot(q, &input_[place(key, first + to, head)], depth_);
    softmax(weights, at + 1);
    float* mean = &output[(first + at) * width_ + head * depth_];
    for (std::size_t to = 0; to <= at; ++to)
      add_scaled(mean, weights[to], &input_[place(value, first + to, head)], depth_);
  }
}

Floats CausalAttention::backward(const Floats& delta) {
  const std::size_t sequences = delta.size() / (width_ * length_);
  Floats by_input(input_.size());
  for (std::size_t s = 0; s < sequences; ++s) {
    for (std::size_t h = 0; h < heads_; ++h) attend_backward(s, h, delta, by_input);
  }
  return by_input;
}

void CausalAttention::attend_backward(std::size_t sequence, std::size_t head, const Floats& delta,
                                      Floats& by_input) const {
  const std::size_t first = sequence * length_;
  Floats by_weight(length_);
  for (std::size_t at = 0; at < length_; ++at) {
    const float* d = &delta[(first + at) * width_ + head * depth_];
    const float* weights = &weights_[weights_of(sequence, head, at)];
    float mean = 0;  // Weights sum to 1: raising one score lowers the others by this much.
    for (std::size_t to = 0; to <= at; ++to) {
      by_weight[to] = dot(d, &input_[place(value, first + to, head)], depth_);
      mean += weights[to] * by_weight[to];
      add_scaled(&by_input[place(value, first + to, head)], weights[to], d, depth_);
    }
    for (std::size_t to = 0; to <= at; ++to) {
      const float by_score = scale_ * weights[to] * (by_weight[to] - mean);
      const std::size_t q = place(query, first + at, head), k = place(key, first + to, head);
      add_scaled(&by_input[q], by_score, &input_[k], depth_);
      add_scaled(&by_input[k], by_score, &input_[q], depth_);
    }
  }
}

}  // namespace gpt
