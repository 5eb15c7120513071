#include "ddp/bucket_memory.hpp"

#include <algorithm>
#include <cstring>

#include "ddp/bucket_plan.hpp"
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

BucketMemory::BucketMemory(const BucketPlan& plan, std::span<const Parameter> parameters)
    : block_(allocate_block(plan)), places_(parameters.size()) {
  std::byte* next = block_.get();
  for (const auto& bucket : plan.buckets) {
    buckets_.push_back(next);
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      const std::size_t i = bucket.parameters[k];
      auto elements = element_count(parameters[i]);
      elements.status().throw_if_error();
      const std::size_t size = size_of(bucket.type);
      places_[i] = {next + bucket.offsets[k] * size, *elements * size};
      gradient_bytes_ += places_[i].bytes;
    }
    next += aligned_bytes(bucket);
  }
}

void BucketMemory::clear() noexcept {
  for (const Place& place : places_) std::memset(place.data, 0, place.bytes);
}

}  // namespace lockstep::internal
