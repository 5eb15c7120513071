// The elements of a bucket that belong to no gradient: alignment gaps, views of frozen gradients between
// others, and what follows the last part.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "lockstep/ddp/bucket_plan.hpp"

namespace lockstep::internal {

/// Calls `visit(first, count)` for each run of them, of a bucket of `count` elements.
template <typename Visit>
void for_each_gap(std::span<const GradientPart> parts, std::size_t count, Visit visit) {
  std::size_t end = 0;
  const auto visit_until = [&](std::size_t next) {
    if (next > end) visit(end, next - end);
  };
  for (const GradientPart& part : parts) {
    visit_until(part.offset);
    end = part.offset + part.count;
  }
  visit_until(count);
}

/// Sets those of a bucket of `count` elements, each of `size` bytes, to zero.
inline void clear_gaps(std::span<const GradientPart> parts, std::byte* bucket, std::size_t count,
                       std::size_t size) {
  for_each_gap(parts, count, [&](std::size_t first, std::size_t elements) {
    std::memset(bucket + first * size, 0, elements * size);
  });
}

}  // namespace lockstep::internal
