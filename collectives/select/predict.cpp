#include "collectives/select/predict.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/domain/staging_window.hpp"
#include "transports/domain.hpp"

namespace lockstep::internal {
namespace {

bool counts_blocks(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::barrier:
      return false;
    default:
      return true;
  }
}

/// Every rank's counts are those of the typical call.
void add_counts(Shape& shape) {
  if (!has_counts(shape.collective)) return;
  shape.counts.assign(static_cast<std::size_t>(shape.world), shape.count);
  if (shape.collective == Collective::all_to_all_v) shape.recv_counts = shape.counts;
}

/// What a link through shared memory costs: it is written and read once, and its reader must look. Where
/// bytes between hosts are slower when all send, hosts share cores, which must do both.
MediumCost link_through(const MediumCost& memory, const Network& network) {
  MediumCost cost = memory;
  cost.alpha = memory.sync;
  cost.beta = memory.copy + 2 * network.busy_byte;
  return cost;
}

/// What a link between hosts costs: the processor's part of a message as over loopback, the rest as measured.
MediumCost link_over(const Network& network, const MediumCost& loopback) {
  MediumCost cost = loopback;
  cost.alpha = std::max(network.latency - 2 * loopback.step, 0.0);
  cost.beta = network.byte;
  return cost;
}

/// What a walk takes from the model.
struct Costs {
  MediumCost far, near;
};

double walk(const Costs& costs, const CostGround& ground, const Algorithm& algorithm, std::uint64_t bytes) {
  Shape shape = typical_shape(algorithm.collective, ground, bytes);
  std::vector<Program> programs;
  for (shape.rank = 0; shape.rank < shape.world; ++shape.rank) programs.push_back(algorithm.build(shape));
  const std::size_t element = bytes % 4 == 0 ? 4 : 1;
  SharedHosts shared{shape.hosts, costs.near};
  if (!shape.hosts.empty()) {
    const int hosts = *std::max_element(shape.hosts.begin(), shape.hosts.end()) + 1;
    shared.busy_message = exact_cost(ground.network.busy_latency / shape.world);
    shared.busy_byte = exact_cost(ground.network.busy_byte / hosts);
  }
  return predict_seconds(programs, element, costs.far, shared);
}

/// Doubling the ranks adds what the last doubling added (trees), twice that (rings), or something between.
/// Only sums and products: see exact_cost.
double walk_large_world(const Costs& costs, const CostGround& ground, const Algorithm& algorithm,
                        std::uint64_t bytes) {
  CostGround smaller = ground;
  smaller.hosts.clear();
  const auto seconds = [&](int world) {
    smaller.world = world;
    return walk(costs, smaller, algorithm, bytes);
  };
  const double quarter = seconds(kWalkedRanks / 4), half = seconds(kWalkedRanks / 2);
  double whole = seconds(kWalkedRanks);
  double added = std::max(whole - half, 0.0);
  const bool doubles = added > (half - quarter) * 1.5;
  for (int world = kWalkedRanks; world < ground.world; world *= 2) {
    if (doubles) added *= 2;
    whole += added;
  }
  return whole;
}

}  // namespace

int log2_class(std::uint64_t bytes) { return bytes < 2 ? 0 : std::bit_width(bytes) - 1; }

std::uint64_t larger_side(Collective collective, std::uint64_t bytes, int world) {
  return counts_blocks(collective) ? bytes * static_cast<std::uint64_t>(world) : bytes;
}

Shape typical_shape(Collective collective, const CostGround& ground, std::uint64_t bytes) {
  const std::uint64_t element = bytes % 4 == 0 ? 4 : 1;
  Shape shape;
  shape.collective = collective;
  shape.world = ground.world;
  shape.count = bytes / element;
  shape.segment = ground.segment_bytes / element;
  shape.streams = ground.streams;
  shape.staging = staging_window(shape, element, kStagingBytes);
  if (ground.world <= kWalkedRanks) shape.hosts = ground.hosts;
  add_counts(shape);
  return shape;
}

bool supports(const Algorithm& algorithm, const CostGround& ground, std::uint64_t bytes) {
  return ground.world <= algorithm.most_on_hosts &&
         algorithm.supports(typical_shape(algorithm.collective, ground, bytes));
}

double predict_uncorrected(const LinkCost& link, const CostGround& ground, const Algorithm& algorithm,
                           std::uint64_t bytes, const LinkCost* memory) {
  const std::uint64_t side = larger_side(algorithm.collective, bytes, ground.world);
  const Costs costs{ground.network.known() ? link_over(ground.network, link.at(side)) : link.at(side),
                    memory != nullptr ? link_through(memory->at(side), ground.network) : link.at(side)};
  const auto seconds = [&](std::uint64_t size) {
    return ground.world > kWalkedRanks ? walk_large_world(costs, ground, algorithm, size)
                                       : walk(costs, ground, algorithm, size);
  };
  std::uint64_t walked = bytes;
  while (larger_side(algorithm.collective, walked, std::min(ground.world, kWalkedRanks)) > kWalkedBytes)
    walked /= 2;
  if (walked == bytes) return seconds(bytes);
  // Beyond, each half of the walked bytes adds what the second half of them did.
  const double whole = seconds(walked), added = whole - seconds(walked / 2);
  const auto halves = static_cast<double>((bytes - walked) / (walked / 2));
  const double more = halves * added;
  return whole + more;
}

double predict_call(const CostModel& model, const CostGround& ground, const Algorithm& algorithm,
                    std::uint64_t bytes) {
  const LinkClass link = class_of(algorithm.medium);
  const LinkCost& memory = model.cost(LinkClass::staged, ground.load);
  const double seconds =
      predict_uncorrected(model.cost(link, ground.load), ground, algorithm, bytes, &memory);
  if (ground.network.known()) return seconds;  // Corrections are those of the loopback.
  const auto found =
      model.corrections.find({ground.load, link, algorithm.collective, std::string(algorithm.name)});
  return found == model.corrections.end() ? seconds : seconds * found->second.at(log2_class(bytes));
}

}  // namespace lockstep::internal
