// The memory of the buckets: blocks of lockstep::allocate, so that every transport reduces in it without
// copying.
#pragma once

#include <cstddef>
#include <vector>

#include "ddp/bucket_places.hpp"
#include "ddp/registered_block.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// Owns the blocks, one for each plan. Zeroed at first. Not thread-safe but for reading; different parameters
/// may be written by different threads.
class BucketMemory {
 public:
  /// Throws Error(out_of_memory). `plan` covers parameters 0 to `parameters` - 1.
  BucketMemory(const BucketPlan& plan, std::size_t parameters);
  /// As much again for `more`, which covers those up to `parameters` - 1 that had no place yet. Nothing
  /// moves.
  void add(const BucketPlan& more, std::size_t parameters);

  const BucketPlaces::Place& place(std::size_t parameter) const noexcept { return places_.place(parameter); }
  /// Where a bucket of the plan begins, or of a plan that leaves out some of its parameters.
  std::byte* start_of(const BucketPlan::Bucket& bucket) const noexcept { return places_.start_of(bucket); }
  std::size_t bytes() const noexcept { return bytes_; }
  /// The gradient becomes zero.
  void clear(std::size_t parameter) noexcept;

 private:
  std::size_t bytes_ = 0;
  std::vector<RegisteredBlock> blocks_;
  BucketPlaces places_;
};

}  // namespace lockstep::internal
