// The elements of a bucket that belong to no gradient: alignment gaps, and what follows the last part.
#pragma once

#include <algorithm>
#include <span>

#include "lockstep/ddp/bucket_plan.hpp"

namespace lockstep::internal {

/// Sets those of a bucket of `count` elements to zero.
inline void clear_gaps(std::span<const GradientPart> parts, float* bucket, std::size_t count) {
  std::size_t end = 0;
  for (const GradientPart& part : parts) {
    std::fill(bucket + end, bucket + part.offset, 0.0f);
    end = part.offset + part.count;
  }
  std::fill(bucket + end, bucket + count, 0.0f);
}

}  // namespace lockstep::internal
