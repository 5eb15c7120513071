#include "ddp/bucket_memory.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "ddp/bucket_plan.hpp"

namespace lockstep::internal {

BucketMemory::BucketMemory(const BucketPlan& plan, std::size_t parameters) { add(plan, parameters); }

void BucketMemory::add(const BucketPlan& more, std::size_t parameters) {
  const std::size_t bytes = std::max(BucketPlaces::bytes_for(more), kBucketAlignment);
  blocks_.emplace_back(std::array{bytes});
  bytes_ += bytes;
  places_.add(more, blocks_.back().part(0), parameters);
}

void BucketMemory::clear(std::size_t parameter) noexcept {
  const BucketPlaces::Place& place = places_.place(parameter);
  std::memset(place.data, 0, place.bytes);
}

}  // namespace lockstep::internal
