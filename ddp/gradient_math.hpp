// Passes over one gradient or parameter: is it finite, how large is it, is it the same as elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/types.hpp"

namespace lockstep::internal {

/// Whether gradients may have this type: float and complex.
bool is_gradient_type(DataType type) noexcept;

/// False when any of `count` elements has an infinity or a NaN, and of any other type than gradients'.
bool all_finite(DataType type, const void* data, std::size_t count) noexcept;

/// Sum of squares, in f64, in an order that depends on `count` only; NaN of any other type than gradients'.
double squared_sum(DataType type, const void* data, std::size_t count) noexcept;

/// A hash that finds accidents and resists no attacker; the same on every machine of one byte order.
std::uint64_t hash_bytes(const void* data, std::size_t bytes) noexcept;

}  // namespace lockstep::internal
