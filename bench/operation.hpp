// The operations that lockstep-bench measures, as one table: how sizes become counts, where in-place buffers
// lie, what is called, and nccl-tests' factor from algbw to busbw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "lockstep/communicator.hpp"

namespace lockstep::bench {

/// Where the elements of an output block come from.
enum class Source : std::uint8_t {
  none,         ///< no data (barrier)
  reduction,    ///< op over all ranks' inputs
  root,         ///< root's input
  block,        ///< block b from rank b's input
  predecessor,  ///< the input of rank - 1
};

struct Arguments {
  const void* input;
  void* output;
  std::size_t count;
  DataType type;
  ReduceOp op;
  int root;
  CallOptions options;
};

struct Operation {
  std::string_view name;
  Source source;
  bool rooted;
  bool blocks_in, blocks_out;  ///< The side has world * count elements; otherwise count.
  bool out_of_place, in_place;
  double (*bus_factor)(int world);  ///< busbw / algbw
  void (*run)(Communicator&, const Arguments&);

  bool reduces() const { return source == Source::reduction; }
  /// Whether it has algorithms to compare by size: a barrier has no size, and a message no algorithm.
  bool is_explained() const { return source != Source::none && source != Source::predecessor; }
  std::uint64_t blocks(bool blocked, int world) const {
    return blocked ? static_cast<std::uint64_t>(world) : 1;
  }
  std::uint64_t input_blocks(int world) const { return blocks(blocks_in, world); }
  std::uint64_t output_blocks(int world) const { return blocks(blocks_out, world); }
  /// The count of the call for `message` bytes: the larger side has at most that many bytes.
  std::uint64_t count(std::uint64_t message, DataType type, int world) const;
  /// Bytes of the larger side.
  std::uint64_t bytes(std::uint64_t call_count, DataType type, int world) const;
  /// Whether this rank's output is written at all.
  bool writes_output(int rank, int root) const;
};

std::span<const Operation> operations();

/// The first byte of this rank's input and output.
struct Placement {
  std::byte* input;
  std::byte* output;
};
/// Out of place: one buffer each. In place: both in `first`, shifted as the call's contract says.
Placement place(const Operation& operation, bool in_place, int rank, int root, std::uint64_t block_bytes,
                std::byte* first, std::byte* second);

}  // namespace lockstep::bench
