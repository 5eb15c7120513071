#include "collectives/device/hosts/staged_call.hpp"

#include <algorithm>

#include "collectives/programs/blocks.hpp"

namespace lockstep::internal {
namespace {

std::byte* bytes_of(const void* buffer) { return static_cast<std::byte*>(const_cast<void*>(buffer)); }

bool has_root(Collective collective) {
  return collective == Collective::reduce || collective == Collective::broadcast ||
         collective == Collective::scatter || collective == Collective::gather;
}

/// Whether one of its buffers has a block for every rank.
bool has_block_for_each(Collective collective) {
  return collective != Collective::all_reduce && collective != Collective::reduce &&
         collective != Collective::broadcast;
}

}  // namespace

DeviceBlocks DeviceBlocks::even(const void* base, std::uint64_t count, std::uint64_t elements) {
  DeviceBlocks side{bytes_of(base), {}};
  for (std::uint64_t first = 0; first < elements; first += count) side.blocks.push_back({first, count});
  return side;
}

DeviceBlocks DeviceBlocks::uneven(const void* base, std::span<const std::size_t> counts) {
  DeviceBlocks side{bytes_of(base), {}};
  std::uint64_t first = 0;
  for (const std::size_t count : counts) {
    side.blocks.push_back({first, count});
    first += count;
  }
  return side;
}

std::uint64_t Column::of(const DeviceBlocks::Block& block) const {
  return std::min(count, block.count - std::min(block.count, first));
}

CallBuilder StagedCall::column_call(const Engine& engine, const Column& column, const void* in,
                                    void* out) const {
  CallOptions options;
  options.priority = priority;
  options.scale = scale;
  options.timeout = std::chrono::milliseconds(0);
  CallBuilder call(collective, engine, options);
  call.elements(type, counts.empty() ? column.count : 0);
  if (!counts.empty()) {
    std::vector<std::size_t> parts;
    for (const std::size_t count : counts) parts.push_back(column.of({0, count}));
    call.counts(parts);
  }
  if (is_reduction(collective)) call.reduction(op);
  if (has_root(collective)) call.root(root);
  call.buffers(in, out);
  return call;
}

StagedCall stage(const Call& call, Collective collective, ReduceOp op) {
  StagedCall staged;
  staged.collective = collective;
  staged.type = call.facts.type;
  staged.op = op;
  staged.priority = call.priority;
  return staged;
}

StagedCall stage_whole(const Call& call, int rank, int world) {
  const CallFacts& facts = call.facts;
  StagedCall staged = stage(call, facts.collective, facts.op);
  staged.root = facts.root;
  staged.scale = call.scale;
  if (facts.op == ReduceOp::premul_sum) staged.device_scale = call.device_scale;
  if (has_block_for_each(facts.collective)) staged.width = static_cast<std::uint64_t>(world);
  if (facts.collective == Collective::all_gather_v || facts.collective == Collective::reduce_scatter_v) {
    staged.counts.assign(call.counts.begin(), call.counts.end());
    staged.longest = *std::max_element(staged.counts.begin(), staged.counts.end());
    const auto own = call.counts.subspan(static_cast<std::size_t>(rank), 1);
    const bool gathers = facts.collective == Collective::all_gather_v;
    staged.input = DeviceBlocks::uneven(call.input, gathers ? own : call.counts);
    staged.output = DeviceBlocks::uneven(call.output, gathers ? call.counts : own);
    return staged;
  }
  staged.longest = facts.count;
  staged.input = DeviceBlocks::even(call.input, facts.count, call.input_elements);
  // A broadcast's root has what the others get.
  const bool has_it = facts.collective == Collective::broadcast && rank == facts.root;
  staged.output = DeviceBlocks::even(call.output, facts.count, has_it ? 0 : call.output_elements);
  return staged;
}

}  // namespace lockstep::internal
