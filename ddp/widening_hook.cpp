#include "ddp/widening_hook.hpp"

#include <vector>

#include "lib/reduce/convert.hpp"

namespace lockstep::internal {

void WideningHook::attach(Communicator&, const BucketPlan& plan, std::span<const Parameter>) {
  std::vector<std::size_t> bytes;
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    bytes.push_back(widens(bucket.type) ? bucket.count * sizeof(float) : 0);
  }
  wide_ = RegisteredBlock(bytes);
}

Work WideningHook::start(Communicator& communicator, const GradientBucket& bucket) {
  if (!widens(bucket.type)) {
    bytes_ += bucket.bytes();
    return communicator.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op());
  }
  widen(bucket.type, bucket.data, wide(bucket), bucket.count, factor_);
  bytes_ += bucket.count * sizeof(float);
  return communicator.all_reduce_async(wide(bucket), wide(bucket), bucket.count, DataType::f32, bucket.op());
}

void WideningHook::finish(const GradientBucket& bucket) {
  if (widens(bucket.type)) narrow(bucket.type, wide(bucket), bucket.data, bucket.count, 1);
}

}  // namespace lockstep::internal
