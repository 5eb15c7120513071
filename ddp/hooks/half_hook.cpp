// bf16 and f16: the bucket is rounded, all_reduced in that type (whose kernels add up in f32), and widened.
#include "ddp/hooks/compressing_hook.hpp"
#include "ddp/registered_block.hpp"
#include "lib/reduce/convert.hpp"
#include "lockstep/ddp/hooks.hpp"

namespace lockstep {
namespace {

class HalfHook final : public internal::CompressingHook {
 public:
  explicit HalfHook(DataType type) : type_(type) {}
  std::string name() const override { return std::string(name_of(type_)); }

 private:
  void prepare(const BucketPlan& plan, std::span<const Parameter>) override {
    std::vector<std::size_t> bytes;
    for (const auto& bucket : plan.buckets)
      bytes.push_back(compresses(bucket) && !alone() ? bucket.count * size_of(type_) : 0);
    encoded_ = internal::RegisteredBlock(bytes);
  }

  Work compress(Communicator& communicator, const GradientBucket& bucket) override {
    void* encoded = encoded_.part(bucket.index);
    internal::narrow(type_, internal::floats(bucket), encoded, bucket.count, weight(bucket));
    count_bytes(bucket.count * size_of(type_));
    return communicator.all_reduce_async(encoded, encoded, bucket.count, type_, ReduceOp::sum);
  }

  void decompress(const GradientBucket& bucket) override {
    internal::widen(type_, encoded_.part(bucket.index), internal::floats(bucket), bucket.count, 1);
  }

  const DataType type_;
  internal::RegisteredBlock encoded_;
};

}  // namespace

std::shared_ptr<CommunicationHook> make_half_hook(DataType type) {
  if (type != DataType::bf16 && type != DataType::f16) {
    throw Error(ErrorCode::invalid_argument,
                "make_half_hook: " + std::string(name_of(type)) + " is no half type; pass bf16 or f16");
  }
  return std::make_shared<HalfHook>(type);
}

}  // namespace lockstep
