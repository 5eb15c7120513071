// Carriers of which each rank gets its shard of every bucket's sum.
#pragma once

#include <memory>

#include "ddp/bucket_carrier.hpp"
#include "ddp/registered_block.hpp"
#include "ddp/sharded/shard_layout.hpp"

namespace lockstep::internal {

/// Carriers with memory for the shards, which leave the buckets' gradients alone.
class ShardCarrier : public BucketCarrier {
 public:
  explicit ShardCarrier(const ShardLayout& layout);

  /// This rank's shard of bucket b: the sum, once finish() returned.
  std::byte* shard(std::size_t bucket) const { return shards_.part(bucket); }
  std::size_t shard_bytes() const { return shards_.bytes(); }
  bool overwrites() const override { return false; }
  /// Of buckets that were lent at once, at their most so far.
  virtual std::size_t most_lent_bytes() const { return 0; }

 private:
  RegisteredBlock shards_;
};

/// ZeRO-1: whole buckets that last.
std::unique_ptr<ShardCarrier> make_scatter_carrier(Communicator& communicator, StepClock& clock,
                                                   const ShardLayout& layout);
/// The same without memory for the shards: each replaces what was in its place.
std::unique_ptr<BucketCarrier> make_scatter_in_place_carrier(Communicator& communicator, StepClock& clock,
                                                             const ShardLayout& layout);

/// ZeRO-2: buckets that are lent for the time from their first gradient to the end of their reduction.
std::unique_ptr<ShardCarrier> make_lending_carrier(Communicator& communicator, StepClock& clock,
                                                   const ShardLayout& layout);
/// The same through a hook, which brings every rank the whole sum of a lent bucket.
std::unique_ptr<ShardCarrier> make_lending_hook_carrier(Communicator& communicator, StepClock& clock,
                                                        const ShardLayout& layout,
                                                        std::shared_ptr<CommunicationHook> hook);

}  // namespace lockstep::internal
