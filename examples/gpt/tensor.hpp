// What is trained.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gpt {

using Floats = std::vector<float>;

/// One trainable tensor. Every backward pass overwrites the gradient.
struct Tensor {
  Tensor(std::string tensor_name, std::vector<std::size_t> tensor_shape)
      : name(std::move(tensor_name)), shape(std::move(tensor_shape)) {
    std::size_t count = 1;
    for (const std::size_t dimension : shape) count *= dimension;
    value.resize(count);
    gradient.resize(count);
  }

  std::string name;
  std::vector<std::size_t> shape;
  Floats value;
  Floats gradient;
};

}  // namespace gpt
