// What kinds of elements there are, and what they are made of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "lib/base/both.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal {

/// The numbers of which an element consists: itself, or two real ones.
struct Parts {
  DataType type;
  std::size_t count;
};
LOCKSTEP_BOTH constexpr Parts parts_of(DataType type) {
  if (type == DataType::complex64) return {DataType::f32, 2};
  if (type == DataType::complex128) return {DataType::f64, 2};
  return {type, 1};
}

constexpr bool is_complex(DataType type) { return parts_of(type).count > 1; }
constexpr bool is_integer(DataType type) { return type >= DataType::i8 && type <= DataType::u64; }

/// An element begins at a multiple of so many bytes; 1 of what is no type.
constexpr std::size_t alignment_of(DataType type) {
  return std::max<std::size_t>(size_of(parts_of(type).type), 1);
}
inline bool is_aligned(const void* data, DataType type) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment_of(type) == 0;
}

}  // namespace lockstep::internal
