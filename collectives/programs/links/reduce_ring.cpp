// reduce "ring": ring reduce-scatter (see ring.hpp), every finished segment goes to the root.
//
// Steps: world - 1, then one message from each rank; for every wave of segments.
// Bytes: (world - 1) / world of the message out of every rank and as much again into the root. Sums travel
// through scratch, because only the root has an output.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/links/ring.hpp"

namespace lockstep::internal {
namespace {

/// Every rank's block but the root's own arrives, nearest left neighbour last in the ring's order.
void collect_at_root(const Shape& shape, RingLanes& lanes, const Blocks& blocks,
                     const RingReduceScatter& ring, int wave) {
  const RingOrder order(shape);
  for (int k = 1; k < shape.world; ++k) {
    const int place = order.place() + k, owner = order.rank_at(place);
    // In place, the block of the left neighbour lies where the first message of the ring was read from.
    const bool was_sent = owner == order.left();
    for (int s = ring.first(wave); s < ring.last(wave); ++s) {
      const After left = was_sent ? ring.left(s) : After{};
      lanes.receives.recv(owner, output(segment_if_any(blocks[place], shape.segment, s)), {left});
    }
  }
}

void reduce_at_root(const Shape& shape, RingLanes& lanes, const Blocks& blocks, RingReduceScatter& ring) {
  for (int wave = 0; wave < ring.waves(); ++wave) {
    ring.run(wave, [](int, Range segment) -> RingReduceScatter::Place { return {output(segment), {}}; });
    collect_at_root(shape, lanes, blocks, ring, wave);
  }
}

void reduce_and_send(const Shape& shape, RingLanes& lanes, Range own, RingReduceScatter& ring,
                     ProgramBuilder& builder) {
  const Range sums = ring.reserve_wave(builder);
  std::vector<After> sent(static_cast<std::size_t>(ring.last(0)));  // By place in the wave.
  const auto sent_before = [&](int s) -> After& { return sent[static_cast<std::size_t>(s) % sent.size()]; };
  for (int wave = 0; wave < ring.waves(); ++wave) {
    ring.run(wave, [&](int s, Range segment) -> RingReduceScatter::Place {
      return {ring.in_wave(sums, s, segment), sent_before(s)};
    });
    for (int s = ring.first(wave); s < ring.last(wave); ++s) {
      keep(sent_before(s),
           lanes.sends.send(shape.root, ring.in_wave(sums, s, segment_if_any(own, shape.segment, s)),
                            {ring.complete(s)}));
    }
  }
}

}  // namespace

Program reduce_ring(const Shape& shape) {
  ProgramBuilder builder;
  RingLanes lanes(builder);
  const Blocks blocks = Blocks::parts(shape.count, shape.world);
  RingReduceScatter ring(shape, builder, lanes, blocks);
  if (shape.rank == shape.root) {
    reduce_at_root(shape, lanes, blocks, ring);
  } else {
    reduce_and_send(shape, lanes, blocks[RingOrder(shape).place()], ring, builder);
  }
  return std::move(builder).build();
}

}  // namespace lockstep::internal
