// ShardLayout: which elements of the buckets are whose. Every bucket is cut into as many shards of equal size
// as there are ranks, so it is padded to a multiple of them.
#pragma once

#include <span>
#include <vector>

#include "lockstep/ddp/bucket_plan.hpp"

namespace lockstep::internal {

class ShardLayout {
 public:
  /// A part of a parameter and the bucket that it lies in.
  struct Place {
    std::size_t bucket = 0;
    GradientPart part;
  };
  /// The elements of a place that lie in one rank's shard.
  struct Share {
    std::size_t first = 0;   ///< Of the parameter's elements.
    std::size_t offset = 0;  ///< From the shard's start.
    std::size_t count = 0;
  };

  ShardLayout(const BucketPlan& plan, std::size_t parameters, int ranks);

  std::size_t buckets() const noexcept { return shards_.size(); }
  std::size_t shard(std::size_t bucket) const noexcept { return shards_[bucket]; }  ///< Elements.
  std::size_t padded(std::size_t bucket) const noexcept { return shards_[bucket] * ranks_; }
  /// Elements of all shards of one rank.
  std::size_t shard_elements() const noexcept;
  std::span<const Place> places(std::size_t parameter) const noexcept { return places_[parameter]; }
  Share share(const Place& place, int rank) const noexcept;

 private:
  std::size_t ranks_;
  std::vector<std::size_t> shards_;
  std::vector<std::vector<Place>> places_;
};

}  // namespace lockstep::internal
