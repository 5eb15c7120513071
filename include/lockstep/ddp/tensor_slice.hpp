// TensorSlice: the part of a tensor that one rank holds.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/types.hpp"

namespace lockstep {

/// Elements [first, first + count) of a tensor, in row-major order. Says nothing of worlds: slices of another
/// number of ranks cut the same tensor elsewhere.
struct TensorSlice {
  std::string name;
  DataType type = DataType::f32;
  std::vector<std::size_t> shape;  ///< Of the whole tensor.
  std::size_t first = 0;
  std::size_t count = 0;
  void* data = nullptr;  ///< Of these elements, contiguous.
};

}  // namespace lockstep
