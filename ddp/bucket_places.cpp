#include "ddp/bucket_places.hpp"

#include "ddp/bucket_plan.hpp"

namespace lockstep::internal {
namespace {

std::size_t aligned_bytes(const BucketPlan::Bucket& bucket) {
  return whole_pages(bucket.count * size_of(bucket.type));
}

}  // namespace

std::size_t BucketPlaces::bytes_for(const BucketPlan& plan) {
  std::size_t bytes = 0;
  for (const auto& bucket : plan.buckets) bytes += aligned_bytes(bucket);
  return bytes;
}

void BucketPlaces::add(const BucketPlan& more, std::byte* block, std::size_t parameters) {
  places_.resize(parameters);
  for (const auto& bucket : more.buckets) {
    const std::size_t size = size_of(bucket.type);
    for (const GradientPart& part : bucket.parts) {
      // Pieces of a split gradient follow each other in the plan, and are whole pages but for the last.
      Place& place = places_[part.parameter];
      if (part.first == 0) place.data = block + part.offset * size;
      place.bytes += part.count * size;
    }
    block += aligned_bytes(bucket);
  }
}

std::byte* BucketPlaces::start_of(const BucketPlan::Bucket& bucket) const noexcept {
  const GradientPart& part = bucket.parts.front();
  return places_[part.parameter].data + part.first * size_of(bucket.type) -
         part.offset * size_of(bucket.type);
}

}  // namespace lockstep::internal
