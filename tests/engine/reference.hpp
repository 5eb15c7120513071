// What a collective must compute: seeded inputs and the expected outputs, independent of the library's
// programs, engine and kernels.
//
// Inputs are small integers of every type, chosen so that each sum and product is exact whatever the order of
// summation; so results are compared bit for bit. Values depend on seed, rank and index: a lost, doubled or
// swapped chunk shows. Integers are combined in 64-bit, floats and the parts of complex numbers in double.
// Covers all types; bitwise ops on integers and booleans. The type must hold world (in f16: 2048, in bf16:
// 256) distinct steps for sums to stay exact; sums of 8-bit floats are exact before they are rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/types.hpp"

namespace lockstep::internal {

struct CollectiveCase {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int world = 1;
  int root = 0;
  std::size_t count = 0;  ///< As in the public call; for v-variants the size around which the blocks vary.
  std::uint64_t seed = 1;
  bool operator==(const CollectiveCase&) const = default;

  bool reduces() const;
  bool rooted() const;
  bool irregular() const;  ///< A v-variant.
  /// "all_reduce f32 x 1001 sum, world 4, root 0, seed 3".
  std::string describe() const;

  /// Elements that `source` contributes for `destination`: every block of scatter, gather, all_gather,
  /// reduce_scatter, all_to_all and their v-variants. The v-blocks are irregular, some of them empty.
  std::size_t block(int source, int destination) const;
  /// The counts argument(s) of the v-variants at `rank`. all_to_all_v: what it sends; receive_counts: what it
  /// gets.
  std::vector<std::size_t> counts(int rank) const;
  std::vector<std::size_t> receive_counts(int rank) const;

  /// Elements that the call reads and writes at `rank`; 0 where a pointer is ignored. broadcast: the buffer
  /// counts as both.
  std::size_t input_elements(int rank) const;
  std::size_t output_elements(int rank) const;

  /// One buffer for a call in place: where input and output begin in it. Empty for collectives without an
  /// in-place form.
  struct InPlace {
    std::size_t elements;
    std::size_t input_at;
    std::size_t output_at;
  };
  std::optional<InPlace> in_place(int rank) const;

  /// premul_sum: this rank's factor.
  double scale(int rank) const;
  /// ReduceOp::user: the maximum, written by a user. The context is this case.
  UserOp user_op() const;

  std::vector<std::byte> input(int rank) const;
  /// Of output_elements(rank).
  std::vector<std::byte> expected(int rank) const;
};

/// Empty when `actual` equals `expected` bit for bit; otherwise the first difference: "element 7 of 9 is 3,
/// expected 5".
std::string first_difference(DataType type, const std::byte* actual, const std::vector<std::byte>& expected);

}  // namespace lockstep::internal
