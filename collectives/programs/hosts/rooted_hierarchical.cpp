// broadcast and reduce "hierarchical": one rank of each host speaks for it, the root on its own. The network
// carries the message once for each host.
//
// Large messages travel in pieces: while one crosses the network, the last one is spread on the host.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/hosts/composition.hpp"
#include "collectives/programs/hosts/host_layout.hpp"
#include "collectives/programs/hosts/pieces.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {
namespace {

/// Who speaks for the hosts, and what this rank is among them.
struct Speakers {
  HostLayout hosts;
  std::vector<int> ranks;
  int own_host_speaker;  ///< Number of the speaker among the ranks of this rank's host.
  bool speaks;

  explicit Speakers(const Shape& shape) : hosts(shape), ranks(hosts.representatives(shape.root)) {
    const int speaker = ranks[static_cast<std::size_t>(hosts.own())];
    const auto& mine = hosts.mine();
    own_host_speaker = static_cast<int>(std::find(mine.begin(), mine.end(), speaker) - mine.begin());
    speaks = speaker == shape.rank;
  }
};

bool is_small(const Shape& shape) { return shape.segment == 0 || shape.count <= shape.segment; }

}  // namespace

Program broadcast_hierarchical(const Shape& shape) {
  const Speakers speakers(shape);
  const HostLayout& hosts = speakers.hosts;
  Composition composition;
  const auto near = composition.track(), far = composition.track();
  const Slice mine = (shape.rank == shape.root ? input : output)({0, shape.count});
  const Blocks pieces = pieces_of(shape);
  for (int i = 0; i < pieces.size(); ++i) {
    const Slice piece = within(mine, pieces[i]);
    Completion there;
    if (speakers.speaks) {
      const Shape across =
          part_shape(shape, Collective::broadcast, speakers.ranks, piece.count, hosts.host_of(shape.root));
      Program program = is_small(across) ? broadcast_binomial(across) : broadcast_chain(across);
      there = composition.add(far, {std::move(program), speakers.ranks, piece, piece});
    }
    const Shape host =
        part_shape(shape, Collective::broadcast, hosts.mine(), piece.count, speakers.own_host_speaker);
    composition.add(near, {broadcast_binomial(host), hosts.mine(), piece, piece}, there);
  }
  return std::move(composition).build();
}

Program reduce_hierarchical(const Shape& shape) {
  const Speakers speakers(shape);
  const HostLayout& hosts = speakers.hosts;
  Composition composition;
  const auto near = composition.track(), far = composition.track();
  const bool alone = hosts.mine().size() == 1, at_root = shape.rank == shape.root;
  const Range whole{0, shape.count};
  // The host's sum; only the root's output is there to hold it.
  const Slice sum = alone             ? input(whole)
                    : at_root         ? output(whole)
                    : speakers.speaks ? composition.reserve(shape.count)
                                      : Slice{};
  const Blocks pieces = pieces_of(shape);
  for (int i = 0; i < pieces.size(); ++i) {
    const Range piece = pieces[i];
    Completion reduced;
    if (!alone) {
      const Shape host =
          part_shape(shape, Collective::reduce, hosts.mine(), piece.count, speakers.own_host_speaker);
      reduced =
          composition.add(near, {reduce_binomial(host), hosts.mine(), input(piece), within(sum, piece)});
    }
    if (!speakers.speaks) continue;
    const Shape across =
        part_shape(shape, Collective::reduce, speakers.ranks, piece.count, hosts.host_of(shape.root));
    Program program = is_small(across) ? reduce_binomial(across) : reduce_ring(across);
    composition.add(far, {std::move(program), speakers.ranks, within(sum, piece), output(piece), true},
                    reduced);
  }
  return std::move(composition).build();
}

}  // namespace lockstep::internal
