// Causal self-attention: each position of a sequence takes a weighted mean of what it and those before it
// offer.
#pragma once

#include "examples/gpt/layer.hpp"

namespace gpt {

/// The part without parameters: rows of [query | key | value] in, rows of means out (Vaswani et al. 2017).
class CausalAttention : public Layer {
 public:
  /// `width` is a multiple of `heads`; each sequence has `length` rows.
  CausalAttention(std::size_t width, std::size_t heads, std::size_t length);
  Floats forward(const Floats& input) override;
  Floats backward(const Floats& delta) override;
  std::vector<Tensor*> tensors() override { return {}; }

 private:
  void attend(std::size_t sequence, std::size_t head, Floats& output);
  void attend_backward(std::size_t sequence, std::size_t head, const Floats& delta, Floats& by_input) const;

  enum Part : std::size_t { query, key, value };
  /// Where this head's part of a row begins in the input.
  std::size_t place(Part part, std::size_t row, std::size_t head) const {
    return (3 * row + part) * width_ + head * depth_;
  }
  /// The weights of position `at`, for the positions up to it.
  std::size_t weights_of(std::size_t sequence, std::size_t head, std::size_t at) const {
    return ((sequence * heads_ + head) * length_ + at) * length_;
  }

  std::size_t width_, heads_, length_;
  std::size_t depth_;  // Columns of a head.
  float scale_;        // Keeps scores near 1 whatever the depth.
  Floats input_;
  Floats weights_;
};

}  // namespace gpt
