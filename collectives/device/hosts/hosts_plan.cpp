#include "collectives/device/hosts/hosts_plan.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lib/reduce/average.hpp"

namespace lockstep::internal {
namespace {

std::byte* at(void* buffer, std::uint64_t element, std::size_t size) {
  return static_cast<std::byte*>(buffer) + element * size;
}

/// `count` elements in as many parts as a host has ranks.
std::vector<std::size_t> shares_of(std::uint64_t count, std::size_t parts) {
  std::vector<std::size_t> shares(parts, count / parts);
  for (std::size_t i = 0; i < count % parts; ++i) ++shares[i];
  return shares;
}

CallBuilder near_call(const Call& call, const HostsGround& ground, Collective collective, double scale = 1) {
  CallOptions options;
  options.scale = scale;
  CallBuilder near(collective, *ground.near, options);
  near.elements(call.facts.type, 0);
  return near;
}

NearStep built(CallBuilder call) {
  static_cast<void>(call.build());
  return {std::move(call)};
}

HostsPlan plan_all_reduce(const Call& call, const HostsGround& ground) {
  const CallFacts& facts = call.facts;
  const auto local = static_cast<std::size_t>(ground.number_of(ground.rank));
  const std::vector<std::size_t> shares =
      shares_of(facts.count, static_cast<std::size_t>(ground.near->group().size()));
  const std::uint64_t before = std::accumulate(shares.begin(), shares.begin() + local, std::uint64_t{0});
  std::byte* const own = at(call.output, before, size_of(facts.type));
  const bool averages = facts.op == ReduceOp::avg;
  const AverageSteps average = averages ? average_steps(facts.type, ground.world()) : AverageSteps();
  const ReduceOp op = !averages ? facts.op : average.factor == 1 ? ReduceOp::sum : ReduceOp::premul_sum;

  HostsPlan plan;
  CallBuilder scatter =
      near_call(call, ground, Collective::reduce_scatter_v, averages ? average.factor : call.scale);
  scatter.counts(shares).reduction(op).buffers(call.input, own).on_device(call.device_scale);
  plan.push_back(built(std::move(scatter)));

  StagedCall row = stage(call, Collective::all_reduce, op == ReduceOp::premul_sum ? ReduceOp::sum : op);
  row.input = row.output = DeviceBlocks::even(own, shares[local], shares[local]);
  row.longest = shares[local];
  plan.push_back(FarStep{std::move(row), true});
  if (average.divisor != 1) plan.push_back(DivideStep{own, facts.type, shares[local], average.divisor});

  CallBuilder gather = near_call(call, ground, Collective::all_gather_v);
  gather.counts(shares).buffers(own, call.output);
  plan.push_back(built(std::move(gather)));
  return plan;
}

HostsPlan plan_broadcast(const Call& call, const HostsGround& ground) {
  const CallFacts& facts = call.facts;
  const int number = ground.number_of(facts.root);
  HostsPlan plan;
  if (number == ground.number_of(ground.rank)) {
    StagedCall row = stage(call, Collective::broadcast, facts.op);
    const auto root = std::find(ground.row.begin(), ground.row.end(), facts.root);
    row.root = static_cast<int>(root - ground.row.begin());
    const bool is_root = facts.root == ground.rank;
    row.input = DeviceBlocks::even(call.input, facts.count, is_root ? facts.count : 0);
    row.output = DeviceBlocks::even(call.output, facts.count, is_root ? 0 : facts.count);
    row.longest = facts.count;
    plan.push_back(FarStep{std::move(row), true});
  }
  CallBuilder near = near_call(call, ground, Collective::broadcast);
  near.root(number).elements(facts.type, facts.count).buffers(call.output, call.output);
  plan.push_back(built(std::move(near)));
  return plan;
}

HostsPlan plan_all_gather(const Call& call, const HostsGround& ground) {
  const CallFacts& facts = call.facts;
  const std::size_t element = size_of(facts.type);
  StagedCall row = stage(call, Collective::all_gather, facts.op);
  row.input = DeviceBlocks::even(call.input, facts.count, facts.count);
  row.output.base = static_cast<std::byte*>(call.output);
  for (const int rank : ground.row)
    row.output.blocks.push_back({static_cast<std::uint64_t>(rank) * facts.count, facts.count});
  row.longest = facts.count;
  row.width = ground.row.size();
  HostsPlan plan;
  plan.push_back(FarStep{std::move(row), true});
  for (const int rank : ground.row) {
    const auto first = static_cast<std::uint64_t>(rank - ground.number_of(rank));  // Of that host.
    CallBuilder near = near_call(call, ground, Collective::all_gather);
    near.elements(facts.type, facts.count)
        .buffers(at(call.output, static_cast<std::uint64_t>(rank) * facts.count, element),
                 at(call.output, first * facts.count, element));
    plan.push_back(built(std::move(near)));
  }
  return plan;
}

}  // namespace

int HostsGround::number_of(int one) const {
  const auto before = hosts.begin() + one;
  return static_cast<int>(std::count(hosts.begin(), before, *before));
}

HostsPlan plan_for_hosts(const Call& call, const HostsGround& ground) {
  const Collective collective = call.facts.collective;
  if (collective == Collective::barrier) return {};
  const bool by_hosts = !ground.row.empty();
  const bool divides = collective == Collective::all_reduce || collective == Collective::broadcast ||
                       (collective == Collective::all_gather && ground.adjacent);
  if (by_hosts && divides && call.facts.count == 0) return {};
  if (by_hosts && divides) {
    if (collective == Collective::all_reduce) return plan_all_reduce(call, ground);
    if (collective == Collective::broadcast) return plan_broadcast(call, ground);
    return plan_all_gather(call, ground);
  }
  HostsPlan plan;
  plan.push_back(FarStep{stage_whole(call, ground.rank, ground.world())});
  return plan;
}

}  // namespace lockstep::internal
