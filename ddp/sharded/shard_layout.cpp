#include "ddp/sharded/shard_layout.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::internal {
namespace {

/// A shard starts on a cache line, so that two ranks never write to one.
constexpr std::size_t kShardUnit = BucketPlan::kAlignment / sizeof(float);

}  // namespace

ShardLayout::ShardLayout(const BucketPlan& plan, std::size_t parameters, int ranks)
    : ranks_(static_cast<std::size_t>(ranks)), places_(parameters) {
  const std::size_t unit = ranks_ * kShardUnit;
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    shards_.push_back((plan.buckets[b].count + unit - 1) / unit * kShardUnit);
    for (const GradientPart& part : plan.buckets[b].parts) places_[part.parameter].push_back({b, part});
  }
}

std::size_t ShardLayout::shard_elements() const noexcept {
  return std::accumulate(shards_.begin(), shards_.end(), std::size_t{0});
}

ShardLayout::Share ShardLayout::share(const Place& place, int rank) const noexcept {
  const std::size_t start = static_cast<std::size_t>(rank) * shards_[place.bucket];
  const std::size_t first = std::max(place.part.offset, start);
  const std::size_t end = std::min(place.part.offset + place.part.count, start + shards_[place.bucket]);
  if (first >= end) return {};
  return {place.part.first + (first - place.part.offset), first - start, end - first};
}

}  // namespace lockstep::internal
