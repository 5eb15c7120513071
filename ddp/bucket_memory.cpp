#include "ddp/bucket_memory.hpp"

#include <algorithm>
#include <cstring>

#include "ddp/bucket_plan.hpp"
#include "lockstep/memory.hpp"

namespace lockstep::internal {
namespace {

std::size_t aligned_bytes(const BucketPlan::Bucket& bucket) {
  const std::size_t bytes = bucket.count * size_of(bucket.type);
  return (bytes + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
}

std::size_t bytes_of(const BucketPlan& plan) {
  std::size_t bytes = 0;
  for (const auto& bucket : plan.buckets) bytes += aligned_bytes(bucket);
  return std::max(bytes, kBucketAlignment);
}

}  // namespace

void BucketMemory::Free::operator()(std::byte* block) const noexcept { lockstep::free(block); }

BucketMemory::BucketMemory(const BucketPlan& plan, std::size_t parameters) { add(plan, parameters); }

void BucketMemory::add(const BucketPlan& more, std::size_t parameters) {
  const std::size_t bytes = bytes_of(more);
  blocks_.emplace_back(static_cast<std::byte*>(lockstep::allocate(bytes)));
  bytes_ += bytes;
  places_.resize(parameters);
  std::byte* next = blocks_.back().get();
  for (const auto& bucket : more.buckets) {
    const std::size_t size = size_of(bucket.type);
    for (const GradientPart& part : bucket.parts) {
      // Pieces of a split gradient follow each other in the plan, and are whole pages but for the last.
      Place& place = places_[part.parameter];
      if (part.first == 0) place.data = next + part.offset * size;
      place.bytes += part.count * size;
    }
    next += aligned_bytes(bucket);
  }
}

std::byte* BucketMemory::start_of(const BucketPlan::Bucket& bucket) const noexcept {
  const GradientPart& part = bucket.parts.front();
  return places_[part.parameter].data + part.first * size_of(bucket.type) -
         part.offset * size_of(bucket.type);
}

void BucketMemory::clear(std::size_t parameter) noexcept {
  const Place& place = places_[parameter];
  std::memset(place.data, 0, place.bytes);
}

}  // namespace lockstep::internal
