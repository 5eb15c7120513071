// One block of the transformer: attention, then a network on each row, both added to what goes past them.
#pragma once

#include "examples/gpt/attention.hpp"
#include "examples/gpt/layer.hpp"

namespace gpt {

class Block : public Layer {
 public:
  /// `deviation` is that of the weights; those that write to the residual stream get it divided by
  /// sqrt(2 * blocks), so that the stream keeps its size (Radford et al. 2019).
  Block(const std::string& name, std::size_t width, std::size_t heads, std::size_t length, float deviation,
        std::size_t blocks, Random& random);
  Floats forward(const Floats& input) override;
  Floats backward(const Floats& delta) override;
  std::vector<Tensor*> tensors() override;

 private:
  LayerNorm attention_norm_;
  Linear query_key_value_;
  CausalAttention attention_;
  Linear attention_out_;
  LayerNorm network_norm_;
  Linear up_;
  Gelu gelu_;
  Linear down_;

  // The two branches in order; views of the members above.
  const std::vector<Layer*> branches_[2] = {
      {&attention_norm_, &query_key_value_, &attention_, &attention_out_},
      {&network_norm_, &up_, &gelu_, &down_},
  };
};

}  // namespace gpt
