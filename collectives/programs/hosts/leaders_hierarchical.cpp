// all_gather, reduce_scatter, their v-variants and barrier "hierarchical": through the leaders of the hosts.
//
// all_gather: the leader collects its host's blocks, the leaders exchange them round a ring, each spreads all
// of them on its host. reduce_scatter: the other way round. Both need the blocks of a host to be adjacent.
// Bytes that a host sends over the network: (hosts - 1) / hosts of the whole, the least possible.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/hosts/composition.hpp"
#include "collectives/programs/hosts/host_layout.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {
namespace {

/// The blocks of each host, joined.
std::vector<std::uint64_t> host_counts(const HostLayout& hosts, const Blocks& blocks) {
  std::vector<std::uint64_t> counts;
  for (int host = 0; host < hosts.size(); ++host)
    counts.push_back(
        blocks.joined(hosts.ranks(host).front(), static_cast<int>(hosts.ranks(host).size())).count);
  return counts;
}

/// The collective on this rank's host that moves its ranks' blocks: of one size, or each of its own.
Shape blocks_on_host(const Shape& shape, const HostLayout& hosts, Collective equal, Collective own_counts) {
  const bool by_rank = has_counts(shape.collective);
  Shape result = part_shape(shape, by_rank ? own_counts : equal, hosts.mine(), shape.count);
  for (const int rank : hosts.mine())
    if (by_rank) result.counts.push_back(shape.counts[static_cast<std::size_t>(rank)]);
  return result;
}

Shape leaders_shape(const Shape& shape, Collective collective, std::span<const int> leaders,
                    const std::vector<std::uint64_t>& counts) {
  Shape result = part_shape(shape, collective, leaders, 0);
  result.counts = counts;
  return result;
}

}  // namespace

Program all_gather_hierarchical(const Shape& shape) {
  const HostLayout hosts(shape);
  const std::vector<int> leaders = hosts.leaders();
  const Blocks blocks = Blocks::of(shape);
  const std::vector<std::uint64_t> counts = host_counts(hosts, blocks);
  const Range own = Blocks(counts)[hosts.own()];
  const Slice all = output({0, blocks.total()}), mine = input({0, blocks[shape.rank].count});
  Composition composition;
  const auto near = composition.track(), far = composition.track();
  const Shape collect = blocks_on_host(shape, hosts, Collective::gather, Collective::gather_v);
  Program gather = collect.counts.empty() ? gather_binomial(collect) : gather_direct(collect);
  Completion done = composition.add(near, {std::move(gather), hosts.mine(), mine, output(own)});
  if (hosts.local() == 0) {
    const Shape exchange = leaders_shape(shape, Collective::all_gather_v, leaders, counts);
    done = composition.add(far, {all_gather_ring(exchange), leaders, output(own), all}, done);
  }
  const Shape spread = part_shape(shape, Collective::broadcast, hosts.mine(), all.count);
  composition.add(near, {broadcast_binomial(spread), hosts.mine(), all, all}, done);
  return std::move(composition).build();
}

Program reduce_scatter_hierarchical(const Shape& shape) {
  const HostLayout hosts(shape);
  const std::vector<int> leaders = hosts.leaders();
  const Blocks blocks = Blocks::of(shape);
  const std::vector<std::uint64_t> counts = host_counts(hosts, blocks);
  const bool leads = hosts.local() == 0, alone = hosts.mine().size() == 1;
  const std::uint64_t everything = blocks.total();
  const Slice result = output({0, blocks[shape.rank].count});
  Composition composition;
  const auto near = composition.track(), far = composition.track();
  Slice sum = input({0, everything}), share = result;
  Completion done;
  if (!alone) {
    if (leads) sum = composition.reserve(everything);
    const Shape collect = part_shape(shape, Collective::reduce, hosts.mine(), everything);
    done = composition.add(near, {reduce_binomial(collect), hosts.mine(), input({0, everything}), sum});
  }
  if (leads) {
    if (!alone) share = composition.reserve(counts[static_cast<std::size_t>(hosts.own())]);
    const Shape exchange = leaders_shape(shape, Collective::reduce_scatter_v, leaders, counts);
    done = composition.add(far, {reduce_scatter_ring(exchange), leaders, sum, share, true}, done);
  }
  if (!alone) {
    const Shape deal = blocks_on_host(shape, hosts, Collective::scatter, Collective::scatter_v);
    composition.add(near, {scatter_direct(deal), hosts.mine(), share, result}, done);
  }
  return std::move(composition).build();
}

namespace {

/// Everybody tells number 0, or number 0 tells everybody.
Program signals(const Shape& shape, bool to_leader) {
  ProgramBuilder builder;
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  for (int other = 1; other < shape.world; ++other) {
    if (shape.rank == 0) to_leader ? receives.expect(other) : sends.signal(other);
    if (shape.rank == other) to_leader ? sends.signal(0) : receives.expect(0);
  }
  return std::move(builder).build();
}

}  // namespace

Program barrier_hierarchical(const Shape& shape) {
  const HostLayout hosts(shape);
  const std::vector<int> leaders = hosts.leaders();
  const Shape host = part_shape(shape, Collective::barrier, hosts.mine(), 0);
  Composition composition;
  const auto near = composition.track(), far = composition.track();
  Completion done = composition.add(near, {signals(host, true), hosts.mine(), {}, {}});
  if (hosts.local() == 0) {
    const Shape across = part_shape(shape, Collective::barrier, leaders, 0);
    done = composition.add(far, {barrier_dissemination(across), leaders, {}, {}}, done);
  }
  composition.add(near, {signals(host, false), hosts.mine(), {}, {}}, done);
  return std::move(composition).build();
}

}  // namespace lockstep::internal
