// Buffers: where the spaces of a program lie in this rank's address space for one operation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/programs/program.hpp"
#include "lib/reduce/average.hpp"
#include "lib/reduce/hand_over.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {

struct Buffers {
  std::size_t element = 1;  ///< Bytes.
  int self = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;  ///< Room for a frame's header lies before it.
  /// Domain programs: by member, in the run's own lists (MemberPlaces). Null for link programs.
  std::byte* const* member_input = nullptr;
  std::byte* const* member_output = nullptr;
  std::byte* const* member_staging = nullptr;
  HandOver* hand_over = nullptr;  ///< Copies to own staging.

  const std::byte* read(const Slice& slice) const { return base(slice) + slice.offset * element; }
  /// Programs write to output, scratch and own staging only, and to members' outputs in registered programs.
  std::byte* write(const Slice& slice) const {
    return const_cast<std::byte*>(base(slice)) + slice.offset * element;
  }
  std::size_t bytes(const Slice& slice) const { return slice.count * element; }

 private:
  const std::byte* base(const Slice& slice) const {
    const auto member = static_cast<std::size_t>(slice.member);
    switch (slice.space) {
      case Space::input:
        return slice.member == kSelf ? input : member_input[member];
      case Space::output:
        return slice.member == kSelf ? output : member_output[member];
      case Space::scratch:
        return scratch;
      case Space::staging:
        return member_staging[slice.member == kSelf ? static_cast<std::size_t>(self) : member];
    }
    return nullptr;
  }
};

/// The reduction of an operation.
struct Combine {
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  UserOp user;
  double divisor = 1;        ///< Of an avg, in the steps that finish it.
  bool past_caches = false;  ///< As in Reduction.
  /// Of a premul_sum and of some averages: this rank's input is multiplied by a factor, on a device as it is
  /// first read. On the host a copy is, before the program begins: InputScaling.
  bool scales = false;
  double scale = 1.0;
  const void* device_scale = nullptr;

  /// For a program that stores sums of some of the `world` ranks on their way: those of an average stay
  /// within its type.
  void keep_in_range(int world) {
    if (op != ReduceOp::avg) return;
    const AverageSteps steps = average_steps(type, world);
    divisor = steps.divisor;
    scales = steps.factor != 1;
    scale = steps.factor;
    device_scale = nullptr;
  }

  Reduction reduction(std::uint64_t count, bool finish) const {
    const bool divide = finish && op == ReduceOp::avg;
    return {type, op, op == ReduceOp::user ? &user : nullptr, count, divide ? divisor : 0, past_caches};
  }
};

}  // namespace lockstep::internal
