// The elements of a bucket that belong to no gradient: alignment gaps, and what follows the last part.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "lockstep/ddp/bucket_plan.hpp"

namespace lockstep::internal {

/// Sets those of a bucket of `count` elements, each of `size` bytes, to zero.
inline void clear_gaps(std::span<const GradientPart> parts, std::byte* bucket, std::size_t count,
                       std::size_t size) {
  std::size_t end = 0;
  const auto clear_until = [&](std::size_t next) {
    std::memset(bucket + end * size, 0, (next - end) * size);
  };
  for (const GradientPart& part : parts) {
    clear_until(part.offset);
    end = part.offset + part.count;
  }
  clear_until(count);
}

}  // namespace lockstep::internal
