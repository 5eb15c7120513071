// Global norms of gradients.
#include "lockstep/ddp/gradient_norm.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "ddp/gradient_math.hpp"
#include "lib/base/element_types.hpp"
#include "lib/base/standard_floats.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep {
namespace {

std::string not_a_gradient(DataType type) {
  return std::string(name_of(type)) + " is no type of gradients; pass float or complex ones";
}

void require_gradient_type(DataType type) {
  if (!internal::is_gradient_type(type)) throw Error(ErrorCode::invalid_argument, not_a_gradient(type));
}

/// Why this rank cannot clip; empty where it can.
std::string problem_of(std::span<const GradientSpan> gradients, double max_norm) {
  if (!(max_norm > 0)) return "clip_by_global_norm: max_norm " + std::to_string(max_norm) + " is not above 0";
  for (const GradientSpan& span : gradients) {
    if (!internal::is_gradient_type(span.type)) return not_a_gradient(span.type);
  }
  return {};
}

/// A rank with a problem takes part all the same, so that nobody waits for it; then all ranks throw.
double sum_over_ranks(Communicator& communicator, double squared, const std::string& problem) {
  std::array<double, 2> sums{squared, problem.empty() ? 0.0 : 1.0};
  communicator.all_reduce(sums.data(), sums.data(), sums.size(), DataType::f64, ReduceOp::sum);
  if (sums[1] == 0) return sums[0];
  std::uint64_t first =
      static_cast<std::uint64_t>(problem.empty() ? communicator.size() : communicator.rank());
  communicator.all_reduce(&first, &first, 1, DataType::u64, ReduceOp::min);
  const int culprit = static_cast<int>(first);
  if (!problem.empty()) throw Error(ErrorCode::invalid_argument, problem, communicator.rank());
  throw Error(ErrorCode::refused,
              "clip_by_global_norm: rank " + std::to_string(culprit) +
                  " refused its arguments; pass a max_norm above 0 and gradients on every rank",
              culprit);
}

/// scale_copy knows no complex types: their parts are scaled alike.
GradientSpan as_real(GradientSpan span) {
  const internal::Parts parts = internal::parts_of(span.type);
  return {parts.type, span.data, parts.count * span.count};
}

}  // namespace

double squared_norm(std::span<const GradientSpan> gradients) {
  const internal::StandardFloats floats;
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
  const internal::StandardFloats floats;
  const std::string problem = problem_of(gradients, max_norm);
  if (communicator == nullptr && !problem.empty()) throw Error(ErrorCode::invalid_argument, problem);
  double squared = problem.empty() ? squared_norm(gradients) : 0;
  if (communicator != nullptr) squared = sum_over_ranks(*communicator, squared, problem);
  const double norm = std::sqrt(squared);
  if (std::isfinite(norm) && norm > max_norm) scale_gradients(gradients, max_norm / norm);
  return norm;
}

}  // namespace lockstep
