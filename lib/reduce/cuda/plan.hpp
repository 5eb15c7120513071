// From a reduction to passes of kernels: which kernel, with what arguments.
#pragma once

#include <vector>

#include "lib/reduce/cuda/pass.hpp"
#include "lib/reduce/job.hpp"

namespace lockstep::internal::cuda {

/// A pass runs the kernel of (type, op), which are fewer than the defined reductions: complex sums are those
/// of their parts, wrapping arithmetic has no sign, booleans are bits, and avg and premul_sum are finished
/// sums.
struct PlannedPass {
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::bor;
  PassArguments arguments{};
};

/// What the kernels see of a job.
struct Work {
  DataType type;
  ReduceOp op;
  std::size_t count;  ///< Elements of `type`.
  double divisor;     ///< Of the last pass.
  bool scaled;        ///< In the first use of each source.
};
Work work_of(const ReduceJob& job);

/// The passes of a checked job, in order. More than kMaxPassBuffers sources are folded pass by pass, and
/// small floats rounded after each (averages within their range: average.hpp), by way of a destination that
/// is not a source of a later pass; not_supported when all are.
Result<std::vector<PlannedPass>> plan_passes(const ReduceJob& job);

}  // namespace lockstep::internal::cuda
