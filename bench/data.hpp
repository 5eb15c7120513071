// Checked data: small integers, scaled to the type's exact range, so that every order of summation gives the
// same bits (the idea of nccl-tests' verifiable data). Every rank can compute every rank's input, and so what
// it must receive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/operation.hpp"

namespace lockstep::bench {

/// One call as seen by one rank.
struct Call {
  const Operation* operation;
  DataType type;
  ReduceOp op;
  int root;
  std::uint64_t count;
  int rank;
  int world;
};

/// The factor of `rank` for ReduceOp::premul_sum: exact in every type.
double premul_scale(int rank);

/// Data of one call. A `round` gives every element a new value, so that a result left over from an earlier
/// round is seen. Values repeat with a prime period: tables of one period make filling and checking as fast
/// as copying.
class Data {
 public:
  explicit Data(const Call& call) : call_(call) {}

  /// Input or output all at the value that the operator maps to itself: it survives any number of rounds in
  /// place.
  void fill_neutral(std::byte* buffer, std::uint64_t elements) const;

  /// Every element of this rank's input.
  void fill(std::byte* input, std::uint64_t round) const;
  /// Elements of the output that differ from what they must be.
  std::uint64_t count_wrong(const std::byte* output, std::uint64_t round) const;

  /// What fill() writes, and what block `block` of the output must hold, as one period: both are that again
  /// and again.
  std::vector<std::byte> input_period(std::uint64_t round) const;
  std::vector<std::byte> output_period(std::uint64_t block, std::uint64_t round) const;

  /// The same at a few elements of every block, first and last among them: costs next to nothing between
  /// timed iterations.
  void fill_samples(std::byte* input, std::uint64_t round) const;
  std::uint64_t count_wrong_samples(const std::byte* output, std::uint64_t round) const;

 private:
  std::int64_t input_value(int rank, std::uint64_t index, std::uint64_t round) const;
  std::int64_t reduced_value(std::uint64_t index, std::uint64_t round) const;
  /// Element `index` of block `block` of this rank's output.
  std::int64_t output_value(std::uint64_t block, std::uint64_t index, std::uint64_t round) const;
  std::uint64_t compare_block(const std::byte* block, const std::vector<std::byte>& period) const;

  Call call_;
};

/// Writes a small integer as one element of `type`. Exact within exact_limit(type).
void encode(DataType type, std::int64_t value, std::byte* element);
/// All integers of magnitude up to this are exact in the type.
std::int64_t exact_limit(DataType type);

}  // namespace lockstep::bench
