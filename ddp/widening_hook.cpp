#include "ddp/widening_hook.hpp"

#include <atomic>
#include <vector>

#include "lib/base/float16.hpp"
#include "lockstep/memory.hpp"

namespace lockstep::internal {
namespace {

bool widens(DataType type) { return type == DataType::f16 || type == DataType::bf16; }

template <typename Small>
void widen(const void* from, float* to, std::size_t count) {
  const auto* bits = static_cast<const typename Small::Bits*>(from);
  for (std::size_t i = 0; i < count; ++i) to[i] = Small::to_float(bits[i]);
}

template <typename Small>
void narrow(const float* from, void* to, std::size_t count) {
  auto* bits = static_cast<typename Small::Bits*>(to);
  for (std::size_t i = 0; i < count; ++i) bits[i] = Small::from_float(from[i]);
}

class WideningHook final : public CommunicationHook {
 public:
  std::string name() const override { return "half in f32"; }

  void attach(Communicator&, const BucketPlan& plan, std::span<const Parameter>) override {
    starts_.clear();
    std::size_t elements = 0;
    for (const BucketPlan::Bucket& bucket : plan.buckets) {
      starts_.push_back(elements);
      constexpr std::size_t kLine = BucketPlan::kAlignment / sizeof(float);
      if (widens(bucket.type)) elements += (bucket.count + kLine - 1) / kLine * kLine;
    }
    wide_.reset(elements > 0 ? static_cast<float*>(lockstep::allocate(elements * sizeof(float))) : nullptr);
  }

  Work start(Communicator& communicator, const GradientBucket& bucket) override {
    if (!widens(bucket.type)) {
      bytes_ += bucket.bytes();
      return communicator.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op());
    }
    float* wide = wide_.get() + starts_[bucket.index];
    bucket.type == DataType::f16 ? widen<F16>(bucket.data, wide, bucket.count)
                                 : widen<BF16>(bucket.data, wide, bucket.count);
    bytes_ += bucket.count * sizeof(float);
    return communicator.all_reduce_async(wide, wide, bucket.count, DataType::f32, bucket.op());
  }

  void finish(const GradientBucket& bucket) override {
    if (!widens(bucket.type)) return;
    const float* wide = wide_.get() + starts_[bucket.index];
    bucket.type == DataType::f16 ? narrow<F16>(wide, bucket.data, bucket.count)
                                 : narrow<BF16>(wide, bucket.data, bucket.count);
  }

  std::uint64_t bytes_on_wire() const override { return bytes_; }

 private:
  struct Free {
    void operator()(float* block) const noexcept { lockstep::free(block); }
  };
  std::unique_ptr<float, Free> wide_;
  std::vector<std::size_t> starts_;  // Of each bucket, in elements of wide_.
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace

std::shared_ptr<CommunicationHook> make_widening_hook() { return std::make_shared<WideningHook>(); }

}  // namespace lockstep::internal
