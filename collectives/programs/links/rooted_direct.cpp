// The rooted collectives "direct": the root exchanges one message with each rank.
//
// reduce: the root receives everybody's data segment by segment and reduces in rank order in one pass.
// Scratch at the root: world - 1 segments. Bits: one rounding.
// scatter_v, gather_v: only the root knows all counts, so empty messages are sent too and a wrong count is
// found.
//
// Steps: 1; the root moves world - 1 messages.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {
namespace {

EmptyMessages empty_messages(const Shape& shape) {
  return has_counts(shape.collective) ? EmptyMessages::sent : EmptyMessages::dropped;
}

}  // namespace

Program broadcast_direct(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder lane = builder.lane();
  const Range whole{0, shape.count};
  if (shape.rank != shape.root) lane.recv(shape.root, output(whole));
  for (int k = 1; k < shape.world && shape.rank == shape.root; ++k) {
    lane.send(wrap(shape.root + k, shape.world), input(whole));
  }
  return std::move(builder).build();
}

Program scatter_direct(const Shape& shape) {
  ProgramBuilder builder(empty_messages(shape));
  LaneBuilder lane = builder.lane();
  if (shape.rank != shape.root) {
    lane.recv(shape.root, output({0, output_elements(shape)}));
    return std::move(builder).build();
  }
  const Blocks blocks = Blocks::of(shape);
  for (int k = 1; k < shape.world; ++k) {
    const int rank = wrap(shape.root + k, shape.world);
    lane.send(rank, input(blocks[rank]));
  }
  builder.lane().copy(input(blocks[shape.root]), output({0, blocks[shape.root].count}));
  return std::move(builder).build();
}

Program gather_direct(const Shape& shape) {
  ProgramBuilder builder(empty_messages(shape));
  LaneBuilder lane = builder.lane();
  if (shape.rank != shape.root) {
    lane.send(shape.root, input({0, input_elements(shape)}));
    return std::move(builder).build();
  }
  const Blocks blocks = Blocks::of(shape);
  for (int k = 1; k < shape.world; ++k) {
    const int rank = wrap(shape.root + k, shape.world);
    lane.recv(rank, output(blocks[rank]));
  }
  builder.lane().copy(input({0, blocks[shape.root].count}), output(blocks[shape.root]));
  return std::move(builder).build();
}

Program reduce_direct(const Shape& shape) {
  ProgramBuilder builder;
  LaneBuilder lane = builder.lane();
  const Range whole{0, shape.count};
  std::vector<Range> arriving(static_cast<std::size_t>(shape.world));
  for (int s = 0; s < segment_count(shape.count, shape.segment); ++s) {
    const Range segment = segment_of(whole, shape.segment, s);
    if (shape.rank != shape.root) {
      lane.send(shape.root, input(segment));
      continue;
    }
    std::vector<Slice> operands(static_cast<std::size_t>(shape.world), input(segment));
    for (int k = 1; k < shape.world; ++k) {
      const auto rank = static_cast<std::size_t>(wrap(shape.root + k, shape.world));
      // The first segment is never the shorter one, so its scratch serves all.
      if (s == 0) arriving[rank] = builder.reserve(segment.count);
      operands[rank] = scratch({arriving[rank].begin, segment.count});
      lane.recv(static_cast<int>(rank), operands[rank]);
    }
    const Slice result = output(segment);
    lane.reduce(operands, {&result, 1}, true);
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
