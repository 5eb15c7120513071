// ShardLayout: which elements of the buckets are whose. Every bucket is cut into as many shards of equal size
// as there are ranks.
#pragma once

#include <vector>

#include "ddp/bucket_plan.hpp"

namespace lockstep::internal {

/// `plan` with buckets that can be cut so: padded, and shards start on cache lines, so that two ranks never
/// write to one.
BucketPlan padded_for(int ranks, BucketPlan plan);

class ShardLayout {
 public:
  /// The elements of a place that lie in one rank's shard.
  struct Share {
    std::size_t first = 0;   ///< Of the parameter's elements.
    std::size_t offset = 0;  ///< From the shard's start.
    std::size_t count = 0;
  };

  /// Of a padded plan.
  ShardLayout(const BucketPlan& plan, std::size_t parameters, int ranks, int rank);

  const BucketPlan& plan() const noexcept { return plan_; }
  std::size_t buckets() const noexcept { return plan_.buckets.size(); }
  const BucketPlan::Bucket& bucket(std::size_t b) const noexcept { return plan_.buckets[b]; }
  DataType type(std::size_t b) const noexcept { return bucket(b).type; }
  std::size_t bucket_bytes(std::size_t b) const noexcept { return bucket(b).count * size_of(type(b)); }

  /// Elements and bytes of a shard of bucket b, and where this rank's begins in the bucket, in bytes.
  std::size_t shard(std::size_t b) const noexcept { return bucket(b).count / ranks_; }
  std::size_t shard_bytes(std::size_t b) const noexcept { return shard(b) * size_of(type(b)); }
  std::size_t shard_offset(std::size_t b) const noexcept { return rank_ * shard_bytes(b); }
  /// The same in elements.
  std::size_t shard_start(std::size_t b) const noexcept { return rank_ * shard(b); }

  const std::vector<PartPlace>& places(std::size_t parameter) const noexcept { return places_[parameter]; }
  /// This rank's part of a place.
  Share share(const PartPlace& place) const noexcept;

 private:
  BucketPlan plan_;
  std::size_t ranks_, rank_;
  std::vector<std::vector<PartPlace>> places_;
};

}  // namespace lockstep::internal
