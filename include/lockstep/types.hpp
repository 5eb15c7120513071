// Element types, reduction operators and collectives: the vocabulary of every call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lockstep/export.hpp"

namespace lockstep {

/// Element type of a buffer. Values are part of the wire format and of the C ABI: never renumber.
enum class DataType : std::uint8_t {
  f16 = 0,
  bf16 = 1,
  f32 = 2,
  f64 = 3,
  i8 = 4,
  u8 = 5,
  i32 = 6,
  u32 = 7,
  i64 = 8,
  u64 = 9,
  boolean = 10,     ///< One byte, 0 or 1.
  complex64 = 11,   ///< Two f32.
  complex128 = 12,  ///< Two f64.
  f8e4m3 = 13,      ///< OCP 8-bit float, 4 exponent bits, no infinities.
  f8e5m2 = 14,      ///< OCP 8-bit float, 5 exponent bits.
};
inline constexpr int kDataTypeCount = 15;

/// Reduction operator.
/// - sum, prod, min, max, avg on every arithmetic type. Integer arithmetic wraps. `avg` of integers is the
///   wrapped sum divided by the world size, truncated toward zero. `avg` of f16 and fp8 does not overflow
///   where sums of some ranks would: where those are stored, over links and by pull_ring, each input is made
///   smaller by a power of two first (as small as a subnormal number, it loses digits). min and max of floats
///   give NaN when any operand is NaN; of zeros with both signs they give either, on all ranks the same.
/// - band, bor, bxor on integers and boolean; a float type is refused by name.
/// - f16, bf16 and fp8 accumulate in f32 inside one reduction step and round once when it is stored.
/// - Floats are rounded to nearest and subnormals kept, whatever mode the calling thread is in, and which it
///   keeps: ranks in different modes get equal bits. What overflows is infinite, in f8e4m3 NaN.
/// - sum, prod and avg on complex types; min and max of complex are refused.
/// - On boolean: sum, max, bor are logical or; prod, min, band are logical and; bxor is exclusive or; avg is
///   refused.
enum class ReduceOp : std::uint8_t {
  sum = 0,
  prod = 1,
  min = 2,
  max = 3,
  avg = 4,
  band = 5,
  bor = 6,
  bxor = 7,
  /// Each rank's input is multiplied by that rank's `CallOptions::scale` first. Real floats; and integers,
  /// whose factor is a whole number of less than 2^53 and whose products wrap.
  premul_sum = 8,
  user = 9,  ///< `CallOptions::user_op`.
};
inline constexpr int kReduceOpCount = 10;

/// Every collective operation. Values are part of the wire format: never renumber.
enum class Collective : std::uint8_t {
  all_reduce = 0,
  reduce = 1,
  broadcast = 2,
  scatter = 3,
  gather = 4,
  all_gather = 5,
  reduce_scatter = 6,
  all_to_all = 7,
  barrier = 8,
  scatter_v = 9,
  gather_v = 10,
  all_gather_v = 11,
  reduce_scatter_v = 12,
  all_to_all_v = 13,
};
inline constexpr int kCollectiveCount = 14;

/// Bytes of one element; 0 of what is no type.
constexpr std::size_t size_of(DataType type) noexcept {
  constexpr std::uint8_t kSizes[kDataTypeCount] = {2, 2, 4, 8, 1, 1, 4, 4, 8, 8, 1, 8, 16, 1, 1};
  const auto i = static_cast<std::size_t>(type);
  return i < kDataTypeCount ? kSizes[i] : 0;
}
/// The name used in tables, errors and options: "f32", "sum", "all_reduce".
LOCKSTEP_API std::string_view name_of(DataType type) noexcept;
LOCKSTEP_API std::string_view name_of(ReduceOp op) noexcept;
LOCKSTEP_API std::string_view name_of(Collective collective) noexcept;

/// A reduction written by the user: must be associative and commutative up to rounding.
/// `combine(in, inout, count, context)` stores `inout[i] = in[i] op inout[i]` for `count` elements of the
/// call's type. It is called on whichever thread makes progress, in the standard mode of floats (rounding to
/// nearest, subnormals kept, no traps), never twice at once for one operation. It may throw: that ends the
/// operation with ErrorCode::aborted and revokes the communicator. Of the library, which waits for it, it may
/// call nothing but abort(). `combine` and `context` must outlive the operation.
struct UserOp {
  void (*combine)(const void* in, void* inout, std::size_t count, void* context) = nullptr;
  void* context = nullptr;
};

}  // namespace lockstep
