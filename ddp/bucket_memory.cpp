#include "ddp/bucket_memory.hpp"

#include <algorithm>
#include <cstring>

#include "lockstep/memory.hpp"

namespace lockstep::internal {
namespace {

/// Buckets start on pages: ranks that reduce neighbouring buckets share no page, and huge parameters keep
/// their alignment.
constexpr std::size_t kBucketAlignment = 4096;

std::size_t aligned_bytes(const BucketPlan::Bucket& bucket) {
  const std::size_t bytes = bucket.count * size_of(bucket.type);
  return (bytes + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
}

std::byte* allocate_block(const BucketPlan& plan) {
  std::size_t bytes = 0;
  for (const auto& bucket : plan.buckets) bytes += aligned_bytes(bucket);
  return static_cast<std::byte*>(lockstep::allocate(std::max(bytes, kBucketAlignment)));
}

}  // namespace

void BucketMemory::Free::operator()(std::byte* block) const noexcept { lockstep::free(block); }

BucketMemory::BucketMemory(const BucketPlan& plan, std::size_t parameters)
    : block_(allocate_block(plan)), places_(parameters) {
  std::byte* next = block_.get();
  for (const auto& bucket : plan.buckets) {
    buckets_.push_back(next);
    const std::size_t size = size_of(bucket.type);
    for (const GradientPart& part : bucket.parts) {
      places_[part.parameter] = {next + part.offset * size, part.count * size};
      gradient_bytes_ += part.count * size;
    }
    next += aligned_bytes(bucket);
  }
}

void BucketMemory::clear() noexcept {
  for (const Place& place : places_) std::memset(place.data, 0, place.bytes);
}

}  // namespace lockstep::internal
