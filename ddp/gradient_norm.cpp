// Global norms of gradients.
#include "lockstep/ddp/gradient_norm.hpp"

#include <cmath>
#include <string>

#include "ddp/gradient_math.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep {
namespace {

void require_gradient_type(DataType type) {
  if (internal::is_gradient_type(type)) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(name_of(type)) + " is no type of gradients; pass float or complex ones");
}

/// scale_copy knows no complex types: their parts are scaled alike.
GradientSpan as_real(GradientSpan span) {
  if (span.type == DataType::complex64) return {DataType::f32, span.data, 2 * span.count};
  if (span.type == DataType::complex128) return {DataType::f64, span.data, 2 * span.count};
  return span;
}

}  // namespace

double squared_norm(std::span<const GradientSpan> gradients) {
  double sum = 0;
  for (const GradientSpan& span : gradients) {
    require_gradient_type(span.type);
    sum += internal::squared_sum(span.type, span.data, span.count);
  }
  return sum;
}

void scale_gradients(std::span<const GradientSpan> gradients, double factor) {
  for (const GradientSpan& span : gradients) {
    require_gradient_type(span.type);
    const GradientSpan real = as_real(span);
    internal::scale_copy(real.type, real.data, real.data, real.count, factor);
  }
}

double clip_by_global_norm(std::span<const GradientSpan> gradients, double max_norm,
                           Communicator* communicator) {
  if (!(max_norm > 0)) {
    throw Error(ErrorCode::invalid_argument,
                "clip_by_global_norm: max_norm " + std::to_string(max_norm) + " is not above 0");
  }
  double squared = squared_norm(gradients);
  if (communicator != nullptr) communicator->all_reduce(&squared, &squared, 1, DataType::f64, ReduceOp::sum);
  const double norm = std::sqrt(squared);
  if (std::isfinite(norm) && norm > max_norm) scale_gradients(gradients, max_norm / norm);
  return norm;
}

}  // namespace lockstep
