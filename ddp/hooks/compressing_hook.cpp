#include "ddp/hooks/compressing_hook.hpp"

namespace lockstep::internal {

void CompressingHook::attach(Communicator& communicator, const BucketPlan& plan,
                             std::span<const Parameter> parameters) {
  ranks_ = communicator.size();
  rank_ = communicator.rank();
  if (ranks_ > 1) prepare(plan, parameters);
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
