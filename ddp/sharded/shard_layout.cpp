#include "ddp/sharded/shard_layout.hpp"

#include <algorithm>

namespace lockstep::internal {

BucketPlan padded_for(int ranks, BucketPlan plan) {
  for (BucketPlan::Bucket& bucket : plan.buckets) {
    const std::size_t unit = static_cast<std::size_t>(ranks) * BucketPlan::kAlignment / size_of(bucket.type);
    bucket.count = (bucket.count + unit - 1) / unit * unit;
  }
  return plan;
}

ShardLayout::ShardLayout(const BucketPlan& plan, std::size_t parameters, int ranks, int rank)
    : plan_(plan),
      ranks_(static_cast<std::size_t>(ranks)),
      rank_(static_cast<std::size_t>(rank)),
      places_(places_of(plan, parameters)) {}

ShardLayout::Share ShardLayout::share(const PartPlace& place) const noexcept {
  const std::size_t start = shard_start(place.bucket);
  const std::size_t first = std::max(place.part.offset, start);
  const std::size_t end = std::min(place.part.offset + place.part.count, start + shard(place.bucket));
  if (first >= end) return {};
  return {place.part.first + (first - place.part.offset), first - start, end - first};
}

}  // namespace lockstep::internal
