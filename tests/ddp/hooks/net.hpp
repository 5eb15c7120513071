// A small model whose steps depend on all that came before: what a hook loses shows in its values.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep {

/// A matrix, a vector, a tensor larger than a bucket, and an empty one.
struct Net {
  std::vector<Parameter> list{{"matrix", DataType::f32, {40, 30}, nullptr, nullptr},
                              {"vector", DataType::f32, {70}, nullptr, nullptr},
                              {"large", DataType::f32, {64, 64}, nullptr, nullptr},
                              {"empty", DataType::f32, {0, 4}, nullptr, nullptr}};
  std::vector<std::vector<float>> values{
      std::vector<float>(1200, 1), std::vector<float>(70, 1), std::vector<float>(4096, 1), {}};
  std::vector<std::vector<float>> gradients = values;

  Net() {
    for (std::size_t i = 0; i < list.size(); ++i) list[i].value = values[i].data();
  }
  /// For those that leave the gradients to the caller.
  std::vector<Parameter> list_with_gradients() {
    std::vector<Parameter> all = list;
    for (std::size_t i = 0; i < list.size(); ++i) all[i].gradient = gradients[i].data();
    return all;
  }
  /// Of a loss that pulls every rank somewhere else, so that what is compressed away matters.
  float gradient(std::size_t i, std::size_t e, int rank, std::uint64_t step) const {
    const auto place = static_cast<float>(e * 7 + i * 3 + step) + 1.7f * static_cast<float>(rank);
    return values[i][e] - std::sin(place);
  }
  std::vector<float> all() const {
    std::vector<float> flat;
    for (const auto& tensor : values) flat.insert(flat.end(), tensor.begin(), tensor.end());
    return flat;
  }
};

}  // namespace lockstep
