// The table of algorithms. A row's position is its wire number: append only.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "collectives/programs/algorithms.hpp"
#include "lib/base/nearest.hpp"

namespace lockstep::internal {
namespace {

bool always(const Shape&) { return true; }

using enum Collective;
constexpr auto kLinks = Medium::links, kStaged = Medium::domain_staged,
               kRegistered = Medium::domain_registered;

constexpr std::array kAlgorithms{
    Algorithm{"ring", all_reduce, kLinks,
              "reduce-scatter and all-gather round a ring: 2(n-1) steps, least bytes (Patarasuk, Yuan 2009)",
              always, all_reduce_ring},
    Algorithm{"direct", all_reduce, kLinks,
              "every rank reduces one part in rank order: 2 steps, least bytes, 2(n-1) messages", always,
              all_reduce_direct},
    Algorithm{"reduce_broadcast", all_reduce, kLinks,
              "binomial reduce to rank 0 and broadcast: 2 log2(n) steps, fewest messages", always,
              all_reduce_reduce_broadcast},
    Algorithm{"recursive_doubling", all_reduce, kLinks,
              "pairs exchange whole sums: log2(n) steps, lowest latency (Thakur et al. 2005)", always,
              all_reduce_recursive_doubling},
    Algorithm{"binomial", reduce, kLinks, "sums travel up a binomial tree: log2(n) steps", always,
              reduce_binomial},
    Algorithm{"ring", reduce, kLinks, "ring reduce-scatter, then the root collects: least bytes", always,
              reduce_ring},
    Algorithm{"direct", reduce, kLinks, "everybody sends to the root, which reduces in rank order", always,
              reduce_direct},
    Algorithm{"binomial", broadcast, kLinks, "down a binomial tree, pipelined by segment: log2(n) steps",
              always, broadcast_binomial},
    Algorithm{"direct", broadcast, kLinks, "the root sends to everybody: 1 step", always, broadcast_direct},
    Algorithm{"direct", scatter, kLinks, "the root sends each rank its block: 1 step", always,
              scatter_direct},
    Algorithm{"direct", scatter_v, kLinks, "the root sends each rank its block: 1 step", always,
              scatter_direct},
    Algorithm{"direct", gather, kLinks, "every rank sends its block to the root: 1 step", always,
              gather_direct},
    Algorithm{"direct", gather_v, kLinks, "every rank sends its block to the root: 1 step", always,
              gather_direct},
    Algorithm{"ring", all_gather, kLinks, "blocks travel round a ring: n-1 steps, neighbours only", always,
              all_gather_ring},
    Algorithm{"ring", all_gather_v, kLinks, "blocks travel round a ring: n-1 steps, neighbours only", always,
              all_gather_ring},
    Algorithm{"direct", all_gather, kLinks, "every rank sends its block to everybody: 1 step", always,
              all_gather_direct},
    Algorithm{"direct", all_gather_v, kLinks, "every rank sends its block to everybody: 1 step", always,
              all_gather_direct},
    Algorithm{"ring", reduce_scatter, kLinks, "partial sums travel round a ring: n-1 steps, least bytes",
              always, reduce_scatter_ring},
    Algorithm{"ring", reduce_scatter_v, kLinks, "partial sums travel round a ring: n-1 steps, least bytes",
              always, reduce_scatter_ring},
    Algorithm{"direct", reduce_scatter, kLinks, "every rank reduces its block in rank order: 1 step", always,
              reduce_scatter_direct},
    Algorithm{"direct", reduce_scatter_v, kLinks, "every rank reduces its block in rank order: 1 step",
              always, reduce_scatter_direct},
    Algorithm{"direct", all_to_all, kLinks, "one partner a round: n-1 messages side by side", always,
              all_to_all_direct},
    Algorithm{"direct", all_to_all_v, kLinks, "one partner a round: n-1 messages side by side", always,
              all_to_all_direct},
    Algorithm{"dissemination", barrier, kLinks,
              "tell the rank 2^k places on: log2(n) steps (Hensgen, Finkel, Manber 1988)", always,
              barrier_dissemination},
    Algorithm{"one_shot", all_reduce, kStaged,
              "copy in, everybody reduces everything: 1 synchronisation, lowest latency", fits_one_shot,
              all_reduce_one_shot},
    Algorithm{"two_shot", all_reduce, kStaged,
              "each rank reduces one part of every block, pipelined through cache-sized slots", fits_two_shot,
              staged_two_shot},
    Algorithm{"fused", all_reduce, kRegistered,
              "each rank reduces one part of all inputs into all outputs: every byte touched once", always,
              all_reduce_fused},
    Algorithm{"two_shot", reduce, kStaged, "each rank reduces one part of every block; the root copies out",
              fits_two_shot, staged_two_shot},
};

const char* medium_name(Medium medium) {
  switch (medium) {
    case Medium::links:
      return "over links";
    case Medium::domain_staged:
      return "through staging memory";
    case Medium::domain_registered:
      return "on registered memory";
  }
  return "";
}

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

Result<const Algorithm*> find_algorithm(Collective collective, Medium medium, std::string_view name) {
  std::vector<std::string_view> names;
  bool known_elsewhere = false;
  for (const Algorithm& row : kAlgorithms) {
    if (row.name == name) known_elsewhere = true;
    if (row.collective != collective || row.medium != medium) continue;
    if (row.name == name) return &row;
    names.push_back(row.name);
  }
  const std::string place = std::string(name_of(collective)) + ' ' + medium_name(medium);
  std::string message = "algorithm \"" + std::string(name) + "\" ";
  message += known_elsewhere ? "does not exist for " + place : "is unknown";
  if (names.empty()) {
    return Status(ErrorCode::invalid_argument, message + "; " + place + " has no algorithms at all");
  }
  message += "; " + place + " has";
  for (std::size_t i = 0; i < names.size(); ++i) message += (i == 0 ? " " : ", ") + std::string(names[i]);
  if (!known_elsewhere) message += " (did you mean " + std::string(nearest(name, names)) + "?)";
  return Status(ErrorCode::invalid_argument, message);
}

}  // namespace lockstep::internal
