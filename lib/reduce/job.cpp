#include "lib/reduce/job.hpp"

#include <string>

#include "lib/base/element_types.hpp"
#include "lib/reduce/convert.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {
namespace {

/// Kernels cannot read elements that straddle their own size.
Status check_alignment(DataType type, const void* pointer) {
  if (is_aligned(pointer, type)) return Status();
  return Status(ErrorCode::invalid_argument, "a buffer of " + std::string(name_of(type)) +
                                                 " on a device has to start at a multiple of " +
                                                 std::to_string(alignment_of(type)) + " bytes");
}

Status check_blocks(DataType type, std::size_t block) {
  if (type != DataType::f8e4m3 && type != DataType::f8e5m2 && type != DataType::i8) {
    return Status(ErrorCode::invalid_argument,
                  "blocks are quantised to f8e4m3, f8e5m2 or i8, not to " + std::string(name_of(type)));
  }
  if (block == 0) {
    return Status(ErrorCode::invalid_argument, "a block to quantise needs at least one element");
  }
  return Status();
}

}  // namespace

Status check_job(const ReduceJob& job) {
  LOCKSTEP_RETURN_IF_ERROR(check_reduction(job.type, job.op));
  if (job.op == ReduceOp::user) {
    return Status(ErrorCode::not_supported,
                  "a user-written reduction does not run on device memory: copy the data to the host, or use "
                  "another ReduceOp");
  }
  if (job.sources.empty() || job.destinations.empty()) {
    return Status(ErrorCode::invalid_argument, "a reduction needs a source and a destination");
  }
  for (const void* source : job.sources) LOCKSTEP_RETURN_IF_ERROR(check_alignment(job.type, source));
  for (const void* to : job.destinations) LOCKSTEP_RETURN_IF_ERROR(check_alignment(job.type, to));
  if (job.factors.empty()) return Status();
  if (job.factors.size() != job.sources.size()) {
    return Status(ErrorCode::invalid_argument, "a reduction has " + std::to_string(job.factors.size()) +
                                                   " factors for " + std::to_string(job.sources.size()) +
                                                   " sources: give one for each, or none");
  }
  if (job.op != ReduceOp::sum && job.op != ReduceOp::avg && job.op != ReduceOp::premul_sum) {
    return Status(ErrorCode::invalid_argument, "only sums have factors, not " + std::string(name_of(job.op)));
  }
  return check_reduction(job.type, ReduceOp::premul_sum);
}

Status check_job(const ConvertJob& job) {
  const bool narrows = job.from == DataType::f32 && is_narrow(job.to);
  const bool widens = job.to == DataType::f32 && is_narrow(job.from);
  if (narrows || widens) {
    LOCKSTEP_RETURN_IF_ERROR(check_alignment(job.from, job.input));
    return check_alignment(job.to, job.output);
  }
  return Status(ErrorCode::invalid_argument, "no conversion from " + std::string(name_of(job.from)) + " to " +
                                                 std::string(name_of(job.to)) +
                                                 ": one of the types has to be f32, the other a smaller one");
}

Status check_job(const QuantiseJob& job) { return check_blocks(job.type, job.block); }
Status check_job(const DequantiseJob& job) { return check_blocks(job.type, job.block); }

}  // namespace lockstep::internal
