// A small GPT: embeddings, blocks, a last norm, and logits for the next character at every position.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "examples/gpt/layer.hpp"

namespace gpt {

struct Config {
  std::size_t vocabulary = 0;
  std::size_t length = 32;  ///< Positions of a sequence.
  std::size_t width = 48;   ///< Of the residual stream; a multiple of heads.
  std::size_t heads = 4;
  std::size_t blocks = 2;
  float deviation = 0.08f;  ///< Of the first weights; large, because the model is small.
};

/// Sequences of equal length, one after the other, and the character that follows each position.
struct Batch {
  std::vector<int> characters;
  std::vector<int> targets;
};

class Model {
 public:
  Model(const Config& config, std::uint64_t seed);

  /// In the order in which forward uses them; valid for the model's life.
  std::vector<Tensor*> tensors();

  /// Logits of every position, a row each. `characters` holds whole sequences.
  const Floats& forward(std::span<const int> characters);
  /// Forward, and the mean cross entropy of its predictions, in nats.
  double loss(const Batch& batch);
  /// Writes the gradients of the last loss(); calls ready(i) when that of tensors()[i] is complete.
  void backward(const std::function<void(std::size_t)>& ready);

 private:
  Floats embed(std::span<const int> characters) const;
  void embed_backward(const Floats& delta);

  Config config_;
  Tensor character_embedding_;
  Tensor position_embedding_;
  std::vector<std::unique_ptr<Layer>> layers_;
  Floats logits_;
  std::vector<int> characters_;  // Of the last forward().
  Floats loss_by_logits_;
};

}  // namespace gpt
