#include "ddp/widening_hook.hpp"

#include <atomic>
#include <vector>

#include "ddp/registered_block.hpp"
#include "lib/reduce/convert.hpp"

namespace lockstep::internal {
namespace {

bool widens(DataType type) { return type == DataType::f16 || type == DataType::bf16; }

class WideningHook final : public CommunicationHook {
 public:
  std::string name() const override { return "half in f32"; }

  void attach(Communicator&, const BucketPlan& plan, std::span<const Parameter>) override {
    std::vector<std::size_t> bytes;
    for (const BucketPlan::Bucket& bucket : plan.buckets) {
      bytes.push_back(widens(bucket.type) ? bucket.count * sizeof(float) : 0);
    }
    wide_ = RegisteredBlock(bytes);
  }

  Work start(Communicator& communicator, const GradientBucket& bucket) override {
    if (!widens(bucket.type)) {
      bytes_ += bucket.bytes();
      return communicator.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op());
    }
    widen(bucket.type, bucket.data, wide(bucket), bucket.count, 1);
    bytes_ += bucket.count * sizeof(float);
    return communicator.all_reduce_async(wide(bucket), wide(bucket), bucket.count, DataType::f32,
                                         bucket.op());
  }

  void finish(const GradientBucket& bucket) override {
    if (widens(bucket.type)) narrow(bucket.type, wide(bucket), bucket.data, bucket.count, 1);
  }

  std::uint64_t bytes_on_wire() const override { return bytes_; }

 private:
  float* wide(const GradientBucket& bucket) const {
    return reinterpret_cast<float*>(wide_.part(bucket.index));
  }

  RegisteredBlock wide_;  // A part for each bucket.
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace

std::shared_ptr<CommunicationHook> make_widening_hook() { return std::make_shared<WideningHook>(); }

}  // namespace lockstep::internal
