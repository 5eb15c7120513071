#include "examples/gpt/block.hpp"

#include <cmath>

namespace gpt {
namespace {

constexpr std::size_t kExpansion = 4;  // Width of the network inside, in widths of the stream.

float residual_deviation(float deviation, std::size_t blocks) {
  return deviation / std::sqrt(2.0f * static_cast<float>(blocks));
}

Floats sum(Floats a, const Floats& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

}  // namespace

Block::Block(const std::string& name, std::size_t width, std::size_t heads, std::size_t length,
             float deviation, std::size_t blocks, Random& random)
    : attention_norm_(name + ".attention_norm", width),
      query_key_value_(name + ".query_key_value", width, 3 * width, deviation, random),
      attention_(width, heads, length),
      attention_out_(name + ".attention_out", width, width, residual_deviation(deviation, blocks), random),
      network_norm_(name + ".network_norm", width),
      up_(name + ".up", width, kExpansion * width, deviation, random),
      down_(name + ".down", kExpansion * width, width, residual_deviation(deviation, blocks), random) {}

Floats Block::forward(const Floats& input) {
  Floats stream = input;
  for (const auto& branch : branches_) {
    Floats rows = stream;
    for (Layer* layer : branch) rows = layer->forward(rows);
    stream = sum(std::move(stream), rows);
  }
  return stream;
}

Floats Block::backward(const Floats& delta) {
  Floats stream = delta;
  for (std::size_t b = std::size(branches_); b-- > 0;) {
    Floats rows = stream;
    for (auto layer = branches_[b].rbegin(); layer != branches_[b].rend(); ++layer)
      rows = (*layer)->backward(rows);
    stream = sum(std::move(stream), rows);
  }
  return stream;
}

std::vector<Tensor*> Block::tensors() {
  std::vector<Tensor*> all;
  for (const auto& branch : branches_) {
    for (Layer* layer : branch) {
      for (Tensor* tensor : layer->tensors()) all.push_back(tensor);
    }
  }
  return all;
}

}  // namespace gpt
