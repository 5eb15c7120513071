// ZeRO-1 without a hook: one reduce_scatter per bucket.
#include "ddp/sharded/scatter_carriers.hpp"

#include "ddp/bucket_work.hpp"
#include "ddp/started_works.hpp"

namespace lockstep::internal {
namespace {

RegisteredBlock memory_of_shards(const ShardLayout& layout) {
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < layout.buckets(); ++b) bytes.push_back(layout.shard_bytes(b));
  return RegisteredBlock(bytes);
}

/// The reductions of a step.
class Scatters {
 public:
  Scatters(Communicator& communicator, StepClock& clock, const ShardLayout& layout)
      : communicator_(communicator), clock_(clock), layout_(layout), works_(communicator) {}

  void start(const GradientBucket& bucket, std::byte* shard) noexcept {
    works_.start([&] {
      return start_reduce_scatter(communicator_, clock_, bucket, shard, layout_.shard(bucket.index));
    });
  }
  std::optional<Error> finish() { return works_.finish(); }

 private:
  Communicator& communicator_;
  StepClock& clock_;
  const ShardLayout& layout_;
  StartedWorks works_;
};

class ScatterCarrier final : public ShardCarrier {
 public:
  ScatterCarrier(Communicator& communicator, StepClock& clock, const ShardLayout& layout)
      : ShardCarrier(layout), scatters_(communicator, clock, layout) {}

  void attach(const BucketPlan&, std::span<const Parameter>) override {}
  void start(const GradientBucket& bucket) noexcept override { scatters_.start(bucket, shard(bucket.index)); }
  std::optional<Error> finish() override { return scatters_.finish(); }

 private:
  Scatters scatters_;
};

class ScatterInPlaceCarrier final : public BucketCarrier {
 public:
  ScatterInPlaceCarrier(Communicator& communicator, StepClock& clock, const ShardLayout& layout)
      : alone_(communicator.size() == 1), layout_(layout), scatters_(communicator, clock, layout) {}

  void attach(const BucketPlan&, std::span<const Parameter>) override {}
  bool overwrites() const override { return !alone_; }
  void start(const GradientBucket& bucket) noexcept override {
    scatters_.start(bucket, static_cast<std::byte*>(bucket.data) + layout_.shard_offset(bucket.index));
  }
  std::optional<Error> finish() override { return scatters_.finish(); }

 private:
  const bool alone_;
  const ShardLayout& layout_;
  Scatters scatters_;
};

}  // namespace

ShardCarrier::ShardCarrier(const ShardLayout& layout) : shards_(memory_of_shards(layout)) {}

std::unique_ptr<ShardCarrier> make_scatter_carrier(Communicator& communicator, StepClock& clock,
                                                   const ShardLayout& layout) {
  return std::make_unique<ScatterCarrier>(communicator, clock, layout);
}

std::unique_ptr<BucketCarrier> make_scatter_in_place_carrier(Communicator& communicator, StepClock& clock,
                                                             const ShardLayout& layout) {
  return std::make_unique<ScatterInPlaceCarrier>(communicator, clock, layout);
}

}  // namespace lockstep::internal
