// reduce "ring": ring reduce-scatter (see ring.hpp), then every rank sends its complete block to the root.
//
// Steps: world - 1, then one message from each rank.
// Bytes: (world - 1) / world of the message out of every rank and as much again into the root. Partial sums
// travel through scratch, because only the root has an output.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/ring.hpp"

namespace lockstep::internal {
namespace {

/// Every rank's block but the root's own arrives, nearest left neighbour last in the ring's order.
void collect_at_root(const Shape& shape, RingLanes& lanes, const Blocks& blocks, const RingReduced& reduced) {
  for (int k = 1; k < shape.world; ++k) {
    const int owner = wrap(shape.root + k, shape.world);
    const Range block = blocks[owner];
    // In place, the block of the left neighbour lies where the first message of the ring was read from.
    const bool was_sent = owner == wrap(shape.root - 1, shape.world);
    for (int s = 0; s < segment_count(block.count, shape.segment); ++s) {
      const After sent = was_sent ? reduced.sent[0][static_cast<std::size_t>(s)] : After{};
      lanes.receives.recv(owner, output(segment_of(block, shape.segment, s)), {sent});
    }
  }
}

}  // namespace

Program reduce_ring(const Shape& shape) {
  ProgramBuilder builder;
  RingLanes lanes(builder);
  const Blocks blocks = Blocks::parts(shape.count, shape.world);
  PartialSums sums(builder, blocks, shape.segment);
  const Range own = blocks[shape.rank];
  const bool at_root = shape.rank == shape.root;
  const Slice result = at_root ? output(own) : scratch(builder.reserve(own.count));
  const RingReduced reduced = ring_reduce_scatter(shape, lanes, blocks, sums, result);
  if (at_root) {
    collect_at_root(shape, lanes, blocks, reduced);
    return std::move(builder).build();
  }
  for (int s = 0; s < segment_count(own.count, shape.segment); ++s) {
    const Range segment = segment_of(own, shape.segment, s);
    const After complete = reduced.result[static_cast<std::size_t>(s)];
    lanes.sends.send(shape.root, part_of_slice(result, own.begin, segment), {complete});
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
