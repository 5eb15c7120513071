// StagedCall: a collective of host memory whose buffers lie on devices, as data. It is cut into columns: the
// same elements of every block of input and output make up a smaller call of the same kind.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/call_builder.hpp"

namespace lockstep::internal {

/// Blocks of one buffer in device memory, in the order of the ranks that they belong to.
struct DeviceBlocks {
  struct Block {
    std::uint64_t first = 0;  ///< Element of the buffer.
    std::uint64_t count = 0;
  };
  std::byte* base = nullptr;
  std::vector<Block> blocks;  ///< Empty: this rank has no such buffer.

  /// Of a buffer whose blocks are all of `count` elements and follow one another.
  static DeviceBlocks even(const void* base, std::uint64_t count, std::uint64_t elements);
  static DeviceBlocks uneven(const void* base, std::span<const std::size_t> counts);
};

/// Elements [first, first + count) of the longest blocks, and what shorter ones have of them.
struct Column {
  std::uint64_t first = 0, count = 0;
  std::uint64_t of(const DeviceBlocks::Block& block) const;
};

struct StagedCall {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = -1;
  double scale = 1;
  const void* device_scale = nullptr;  ///< Of premul_sum: where the scale lies on the device, or null.
  int priority = 0;
  DeviceBlocks input, output;
  std::vector<std::size_t> counts;  ///< all_gather_v, reduce_scatter_v.
  // Equal on all ranks:
  std::uint64_t longest = 0;  ///< Elements of the longest block.
  std::uint64_t width = 1;    ///< Blocks of the buffer that has most.

  /// Input and output are one buffer in host memory.
  bool in_one_buffer() const {
    return collective == Collective::all_reduce || collective == Collective::broadcast;
  }
  /// One column, on packed blocks in host memory. Without a deadline: who carries it has that of them all.
  CallBuilder column_call(const Engine& engine, const Column& column, const void* in, void* out) const;
};

/// With the type and priority of `call`, and no blocks yet.
StagedCall stage(const Call& call, Collective collective, ReduceOp op);
/// `call`, made on device memory by one of `world` ranks, over the host memory of all of them. Its buffers
/// are those of a collective that has no messages.
StagedCall stage_whole(const Call& call, int rank, int world);

}  // namespace lockstep::internal
