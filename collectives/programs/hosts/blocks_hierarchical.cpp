// scatter and gather "hierarchical": one rank of each host speaks for it, the root on its own. The blocks of
// a host travel between the hosts as one message.
//
// Every block crosses the network once, as it would on its own: what is saved is messages, hosts - 1 instead
// of one for each rank elsewhere. Where the ranks of a host do not follow one another, the root copies its
// blocks together, or apart. scatter_v and gather_v have no such program: a speaker knows no other count than
// its own.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/hosts/host_layout.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {
namespace {

/// What both directions have in common, seen from one rank.
struct BlocksOfHosts {
  HostLayout hosts;
  std::vector<int> speakers;
  std::uint64_t count;
  int speaker;  ///< Of this rank's host.

  explicit BlocksOfHosts(const Shape& shape)
      : hosts(shape),
        speakers(hosts.representatives(shape.root)),
        count(shape.count),
        speaker(speakers[static_cast<std::size_t>(hosts.own())]) {}

  Range block(int rank) const { return {static_cast<std::uint64_t>(rank) * count, count}; }
  std::uint64_t elements_of(int host) const { return count * hosts.ranks(host).size(); }
  /// The place of each rank of a host in the memory that holds the host's blocks from `begin` on.
  template <typename Visit>
  void for_each_block(int host, std::uint64_t begin, const Visit& visit) const {
    for (const int rank : hosts.ranks(host)) {
      visit(rank, Range{begin, count});
      begin += count;
    }
  }
  /// Whether the blocks of a host lie side by side in a buffer of all blocks.
  bool side_by_side(int host) const {
    const auto& ranks = hosts.ranks(host);
    return ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  }
  Range joined(int host) const { return {block(hosts.ranks(host).front()).begin, elements_of(host)}; }
};

}  // namespace

Program gather_hierarchical(const Shape& shape) {
  const BlocksOfHosts of(shape);
  ProgramBuilder builder;
  LaneBuilder messages = builder.lane();
  const Slice own = input({0, shape.count});
  if (shape.rank != of.speaker) {
    messages.send(of.speaker, own);
    return std::move(builder).build();
  }
  if (shape.rank != shape.root) {
    const Range together = builder.reserve(of.elements_of(of.hosts.own()));
    LaneBuilder copies = builder.lane();
    After copied;
    of.for_each_block(of.hosts.own(), together.begin, [&](int rank, Range place) {
      if (rank == shape.rank) copied = copies.copy(own, scratch(place));
      if (rank != shape.rank) messages.recv(rank, scratch(place));
    });
    messages.send(shape.root, scratch(together), {copied});
    return std::move(builder).build();
  }
  LaneBuilder copies = builder.lane();
  copies.copy(own, output(of.block(shape.rank)));
  for (const int rank : of.hosts.mine()) {
    if (rank != shape.rank) messages.recv(rank, output(of.block(rank)));
  }
  for (int host = 0; host < of.hosts.size(); ++host) {
    const int speaker = of.speakers[static_cast<std::size_t>(host)];
    if (speaker == shape.rank) continue;
    if (of.side_by_side(host)) {
      messages.recv(speaker, output(of.joined(host)));
      continue;
    }
    const Range together = builder.reserve(of.elements_of(host));
    const After arrived = messages.recv(speaker, scratch(together));
    of.for_each_block(host, together.begin, [&](int rank, Range place) {
      copies.copy(scratch(place), output(of.block(rank)), {arrived});
    });
  }
  return std::move(builder).build();
}

Program scatter_hierarchical(const Shape& shape) {
  const BlocksOfHosts of(shape);
  ProgramBuilder builder;
  LaneBuilder messages = builder.lane();
  const Slice own = output({0, shape.count});
  if (shape.rank != of.speaker) {
    messages.recv(of.speaker, own);
    return std::move(builder).build();
  }
  LaneBuilder copies = builder.lane();
  if (shape.rank != shape.root) {
    const Range together = builder.reserve(of.elements_of(of.hosts.own()));
    const After arrived = messages.recv(shape.root, scratch(together));
    of.for_each_block(of.hosts.own(), together.begin, [&](int rank, Range place) {
      if (rank == shape.rank) copies.copy(scratch(place), own, {arrived});
      if (rank != shape.rank) messages.send(rank, scratch(place));
    });
    return std::move(builder).build();
  }
  for (int host = 0; host < of.hosts.size(); ++host) {
    const int speaker = of.speakers[static_cast<std::size_t>(host)];
    if (speaker == shape.rank) continue;
    if (of.side_by_side(host)) {
      messages.send(speaker, input(of.joined(host)));
      continue;
    }
    const Range together = builder.reserve(of.elements_of(host));
    After copied;
    of.for_each_block(host, together.begin, [&](int rank, Range place) {
      copied = copies.copy(input(of.block(rank)), scratch(place));
    });
    messages.send(speaker, scratch(together), {copied});
  }
  for (const int rank : of.hosts.mine()) {
    if (rank != shape.rank) messages.send(rank, input(of.block(rank)));
  }
  copies.copy(input(of.block(shape.rank)), own);
  return std::move(builder).build();
}

}  // namespace lockstep::internal
