#include "ddp/hooks/compressing_hook.hpp"

namespace lockstep::internal {

void CompressingHook::attach(Communicator& communicator, const BucketPlan& plan,
                             std::span<const Parameter> parameters) {
  ranks_ = communicator.size();
  rank_ = communicator.rank();
  plan_ = &plan;
  parameters_ = parameters;
  prepare(plan, parameters);
}

std::vector<HookTensor> CompressingHook::state() {
  std::vector<HookTensor> list;
  for (std::size_t b = 0; b < plan_->buckets.size(); ++b) {
    if (!compresses(plan_->buckets[b])) continue;
    for (const GradientPart& part : plan_->buckets[b].parts) {
      if (part.count > 0) add_state(list, b, part, parameters_[part.parameter]);
    }
  }
  return list;
}

HookTensor CompressingHook::residual_of(const GradientPart& part, const Parameter& parameter,
                                        std::span<float> bucket) const {
  float* data = bucket.empty() ? nullptr : bucket.data() + part.offset;
  return {{parameter.name + "#residual", DataType::f32, parameter.shape, part.first, part.count, data}, true};
}

Work CompressingHook::start(Communicator& communicator, const GradientBucket& bucket) {
  if (ranks_ == 1) return {};
  if (!compresses(bucket.type, bucket.count)) return send_as_is(communicator, bucket);
  return compress(communicator, bucket);
}

void CompressingHook::finish(const GradientBucket& bucket) {
  if (ranks_ > 1 && compresses(bucket.type, bucket.count)) decompress(bucket);
}

Work CompressingHook::send_as_is(Communicator& communicator, const GradientBucket& bucket) {
  count_bytes(bucket.bytes());
  return communicator.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op());
}

}  // namespace lockstep::internal
