// Carriers of which each rank gets its shard of every bucket's sum.
#pragma once

#include <memory>

#include "ddp/bucket_carrier.hpp"
#include "ddp/sharded/shard_layout.hpp"

namespace lockstep::internal {

/// ZeRO-1: whole buckets that last; the shard replaces what was in its place.
std::unique_ptr<BucketCarrier> make_scatter_carrier(Communicator& communicator, StepClock& clock,
                                                    const ShardLayout& layout);

/// ZeRO-2: shards that last, and buckets that are lent for the time from their first gradient to the end of
/// their reduction.
class LendingCarrier : public BucketCarrier {
 public:
  /// This rank's shard of bucket b: the sum, once finish() returned.
  virtual std::byte* shard(std::size_t bucket) const = 0;
  virtual std::size_t shard_bytes() const = 0;
  virtual std::size_t most_lent_bytes() const = 0;
};
std::unique_ptr<LendingCarrier> make_lending_carrier(Communicator& communicator, StepClock& clock,
                                                     const ShardLayout& layout);

}  // namespace lockstep::internal
