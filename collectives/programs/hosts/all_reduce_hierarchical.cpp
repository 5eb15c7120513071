// all_reduce over several hosts with several ranks on some: the network carries each host's sum, not each
// rank's data.
//
// "hierarchical": where every host has as many ranks, the ranks of a host reduce-scatter among themselves;
// each all_reduces its block with the ranks of its number on the other hosts, all of them at once; then the
// host's ranks gather the blocks. Elsewhere the host's leader does the middle stage alone, between a
// reduction to it and a broadcast by it.
// "leaders": always through the leaders, in few messages.
//
// Bytes that a host sends over the network: 2 (hosts - 1) / hosts of the message, the least possible.
// Bits: every element is summed on each host by one rank, then across hosts once, and copied.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/hosts/composition.hpp"
#include "collectives/programs/hosts/host_layout.hpp"
#include "collectives/programs/hosts/pieces.hpp"
#include "collectives/programs/links/ring.hpp"

namespace lockstep::internal {
namespace {

Program reduce_scatter_to_block(const Shape& shape, const Blocks& blocks) {
  ProgramBuilder builder;
  RingLanes lanes(builder);
  RingReduceScatter ring(shape, builder, lanes, blocks);
  for (int wave = 0; wave < ring.waves(); ++wave) {
    ring.run(wave, [](int, Range segment) -> RingReduceScatter::Place { return {output(segment), {}}; });
  }
  return std::move(builder).build();
}

Program all_gather_of_blocks(const Shape& shape, const Blocks& blocks) {
  ProgramBuilder builder;
  RingLanes lanes(builder);
  ring_all_gather(shape, lanes, blocks, output(blocks[shape.rank]), {});
  return std::move(builder).build();
}

/// The three stages of one piece.
class Stages {
 public:
  Stages(const Shape& shape, Program (*across)(const Shape&), bool by_blocks)
      : shape_(shape), hosts_(shape), across_(across), by_blocks_(by_blocks && hosts_.even()) {}

  Completion reduce_on_host(Range piece) {
    if (hosts_.mine().size() == 1) return {};
    const Shape host = on_host(Collective::reduce, piece);
    Program program = by_blocks_ ? reduce_scatter_to_block(host, blocks(piece)) : reduce_binomial(host);
    return composition_.add(near_, {std::move(program), hosts_.mine(), input(piece), output(piece)});
  }

  Completion sum_across(Range piece, const Completion& reduced) {
    if (!by_blocks_ && hosts_.local() != 0) return reduced;
    Range part = piece;
    if (by_blocks_) {
      part = blocks(piece)[hosts_.local()];
      part.begin += piece.begin;
    }
    const std::vector<int> ranks = hosts_.across(by_blocks_ ? hosts_.local() : 0);
    const Shape across = part_shape(shape_, Collective::all_reduce, ranks, part.count);
    const Slice source = hosts_.mine().size() == 1 ? input(part) : output(part);
    return composition_.add(far_, {across_(across), ranks, source, output(part), true}, reduced);
  }

  void spread_on_host(Range piece, const Completion& summed) {
    const Shape host = on_host(Collective::broadcast, piece);
    Program program = by_blocks_ ? all_gather_of_blocks(host, blocks(piece)) : broadcast_binomial(host);
    composition_.add(near_, {std::move(program), hosts_.mine(), output(piece), output(piece)}, summed);
  }

  Program build() && { return std::move(composition_).build(); }

 private:
  Shape on_host(Collective collective, Range piece) const {
    return part_shape(shape_, collective, hosts_.mine(), piece.count);
  }
  Blocks blocks(Range piece) const {
    return Blocks::parts(piece.count, static_cast<int>(hosts_.mine().size()));
  }

  const Shape& shape_;
  const HostLayout hosts_;
  Program (*const across_)(const Shape&);
  const bool by_blocks_;
  Composition composition_;
  const Composition::Track near_ = composition_.track(), far_ = composition_.track();
};

}  // namespace

Program all_reduce_hierarchical(const Shape& shape) {
  Stages stages(shape, all_reduce_ring, true);
  const Blocks pieces = pieces_of(shape);
  std::vector<Completion> summed;
  // A piece is spread after the next has been reduced, which then crosses the network meanwhile.
  for (int i = 0; i <= pieces.size(); ++i) {
    if (i < pieces.size()) summed.push_back(stages.sum_across(pieces[i], stages.reduce_on_host(pieces[i])));
    if (i > 0) stages.spread_on_host(pieces[i - 1], summed[static_cast<std::size_t>(i - 1)]);
  }
  return std::move(stages).build();
}

Program all_reduce_leaders(const Shape& shape) {
  Stages stages(shape, all_reduce_recursive_doubling, false);
  const Range whole{0, shape.count};
  stages.spread_on_host(whole, stages.sum_across(whole, stages.reduce_on_host(whole)));
  return std::move(stages).build();
}

}  // namespace lockstep::internal
