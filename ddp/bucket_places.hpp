// BucketPlaces: where gradients and buckets lie in the blocks of memory that were made for them.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// Knows addresses only: of the host's memory, or of a device's.
class BucketPlaces {
 public:
  /// The place of one parameter's gradient, in one piece whatever the number of its buckets.
  struct Place {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
  };

  /// Bytes of a block for `plan`, whose buckets begin on pages there.
  static std::size_t bytes_for(const BucketPlan& plan);
  /// The buckets of `more`, of parameters up to `parameters` - 1 that had no place yet, lie at `block`.
  void add(const BucketPlan& more, std::byte* block, std::size_t parameters);

  const Place& place(std::size_t parameter) const noexcept { return places_[parameter]; }
  /// Where a bucket of a plan begins, or of a plan that leaves out some of its parameters.
  std::byte* start_of(const BucketPlan::Bucket& bucket) const noexcept;

 private:
  std::vector<Place> places_;
};

}  // namespace lockstep::internal
