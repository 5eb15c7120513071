// Parameter: one trainable tensor, as its trainer describes it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "lockstep/types.hpp"

namespace lockstep {

/// One trainable tensor. `value` (the parameter itself) is contiguous, aligned for its type, and belongs to
/// the caller.
struct Parameter {
  std::string name;               ///< No other parameter's: messages, checkpoints and hooks know it by this.
  DataType type = DataType::f32;  ///< A float or complex type.
  std::vector<std::size_t> shape;
  void* value = nullptr;
  /// Where the caller keeps the gradient, contiguous and aligned: without ReducerOptions::gradients_as_views
  /// and with ZeroStage::gradients. Otherwise the reducer keeps it, where its gradient(i) says, and this is
  /// null: memory that nothing reads is refused.
  void* gradient = nullptr;
};

}  // namespace lockstep
