#include "ddp/bucket_memory.hpp"

#include <algorithm>
#include <cstring>

#include "ddp/bucket_plan.hpp"
#include "lockstep/memory.hpp"

namespace lockstep::internal {
void BucketMemory::Free::operator()(std::byte* block) const noexcept { lockstep::free(block); }

BucketMemory::BucketMemory(const BucketPlan& plan, std::size_t parameters) { add(plan, parameters); }

void BucketMemory::add(const BucketPlan& more, std::size_t parameters) {
  const std::size_t bytes = std::max(BucketPlaces::bytes_for(more), kBucketAlignment);
  blocks_.emplace_back(static_cast<std::byte*>(lockstep::allocate(bytes)));
  bytes_ += bytes;
  places_.add(more, blocks_.back().get(), parameters);
}

void BucketMemory::clear(std::size_t parameter) noexcept {
  const BucketPlaces::Place& place = places_.place(parameter);
  std::memset(place.data, 0, place.bytes);
}

}  // namespace lockstep::internal
