// The memory of one call of a CollectiveCase: filled before, checked after, with canaries around what the
// call may write.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tests/engine/reference.hpp"

namespace lockstep::internal {

class CallBuffers {
 public:
  /// Bytes of memory that every rank needs at most for `c`.
  static std::size_t bytes_needed(const CollectiveCase& c);

  /// Lays input and output of `rank` out in `memory` (at least bytes_needed, aligned to 64) and fills them.
  /// `in_place` is ignored where the collective has no such form; a broadcast is always in place. The buffers
  /// start at odd multiples of the element size.
  CallBuffers(const CollectiveCase& c, int rank, bool in_place, std::span<std::byte> memory);

  /// Null where the rank has no elements.
  const void* input() const { return input_; }
  void* output() const { return output_; }

  /// After success: the output is right, and nothing else changed. Empty, or what is wrong.
  std::string check_result() const;
  /// After a failure: the input is unchanged unless in place, and no canary was touched.
  std::string check_unharmed() const;

 private:
  std::span<std::byte> place(std::span<std::byte>& memory, std::size_t elements);
  bool input_must_survive() const;

  CollectiveCase case_;
  int rank_;
  bool in_place_;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::vector<std::byte> original_input_;
  std::vector<std::span<const std::byte>> canaries_;
};

}  // namespace lockstep::internal
