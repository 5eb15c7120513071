// The k elements of largest magnitude, found exactly in a few passes.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::internal {

/// Writes the indices of the `indices.size()` elements of largest magnitude in ascending order; among equal
/// ones those that come first. NaN counts as larger than infinity. At most values.size() (below 2^32) are
/// asked for.
void find_largest(std::span<const float> values, std::span<std::uint32_t> indices);

}  // namespace lockstep::internal
