// Global norms of gradients, whole or in shards. Callable from any thread; nothing else may write the
// gradients meanwhile.
#pragma once

#include <cstddef>
#include <span>

#include "lockstep/communicator.hpp"
#include "lockstep/export.hpp"
#include "lockstep/types.hpp"

namespace lockstep {

/// Contiguous gradients of one type: float or complex.
struct GradientSpan {
  DataType type = DataType::f32;
  void* data = nullptr;
  std::size_t count = 0;
};

/// Sum of squares in f64, in an order that depends on the sizes only: equal bits on every rank that has equal
/// gradients, whatever its thread does with subnormals. Throws Error(invalid_argument) on a type without
/// gradients.
LOCKSTEP_API double squared_norm(std::span<const GradientSpan> gradients);

/// Multiplies every element, in its type. Throws as squared_norm.
LOCKSTEP_API void scale_gradients(std::span<const GradientSpan> gradients, double factor);

/// Scales by max_norm / norm when the L2 norm is above max_norm (> 0). Returns the norm before. With
/// `communicator`, collective: each rank has another shard, and the norm is that of all shards together.
/// Without: of `gradients`. A norm that is not finite scales nothing.
LOCKSTEP_API double clip_by_global_norm(std::span<const GradientSpan> gradients, double max_norm,
                                        Communicator* communicator = nullptr);

}  // namespace lockstep
