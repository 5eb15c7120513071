#include "lockstep/ddp/local_sgd.hpp"

#include "collectives/communicator_core.hpp"
#include "ddp/bucket_plan.hpp"

namespace lockstep {

LocalSgd::LocalSgd(const LocalSgdOptions& options) : options_(options) {
  if (options.period > 0) return;
  throw Error(ErrorCode::invalid_argument, "LocalSgd: a period of 0 steps; choose at least 1");
}

std::string LocalSgd::name() const {
  return "local_sgd from step " + std::to_string(options_.start_step) + " every " +
         std::to_string(options_.period);
}

void LocalSgd::attach(Communicator& communicator, const BucketPlan&, std::span<const Parameter> parameters) {
  communicator_.emplace(communicator.core().shared_from_this());
  parameters_.assign(parameters.begin(), parameters.end());
}

Work LocalSgd::start(Communicator& communicator, const GradientBucket& bucket) {
  started_ = bucket.step;
  if (bucket.step >= options_.start_step) return {};
  bytes_ += bucket.bytes();
  return communicator.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op());
}

void LocalSgd::end_step(bool good) {
  if (!good) return;
  step_ = started_;
  averaged_ = false;
}

/// Counted from the step before the first local one, when the replicas were equal.
bool LocalSgd::due(std::uint64_t step) const {
  return step >= options_.start_step && (step - options_.start_step + 1) % options_.period == 0;
}

bool LocalSgd::average_parameters(bool force) {
  const bool local = communicator_ && step_ >= options_.start_step;
  if (!local || averaged_ || !(due(step_) || force)) return false;
  Batch batch = communicator_->batch();
  for (const Parameter& parameter : parameters_) {
    const std::size_t count = internal::element_count(parameter).value();  // Checked by the reducer.
    if (count == 0) continue;
    batch.all_reduce(parameter.value, parameter.value, count, parameter.type, ReduceOp::avg);
    bytes_ += count * size_of(parameter.type);
  }
  batch.submit().wait();
  averaged_ = true;
  return true;
}

}  // namespace lockstep
