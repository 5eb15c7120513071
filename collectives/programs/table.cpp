// The table of algorithms. A row's position + 1 is its wire number: append only.
#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/hosts/host_layout.hpp"
#include "lib/base/nearest.hpp"

namespace lockstep::internal {
namespace {

bool always(const Shape&) { return true; }

using enum Collective;
constexpr auto kLinks = Medium::links, kStaged = Medium::domain_staged,
               kRegistered = Medium::domain_registered, kPulled = Medium::domain_pulled;

constexpr Algorithm reading(Algorithm row) {
  row.only_reads = true;
  return row;
}

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
    Algorithm{"rabenseifner", all_reduce, kLinks,
              "recursive halving and doubling: 2 log2(n) steps, least bytes (Rabenseifner 2004)", always,
              all_reduce_rabenseifner},
    Algorithm{"scatter_all_gather", broadcast, kLinks,
              "parts down a tree, then round a ring: least bytes (Barnett et al. 1994)", always,
              broadcast_scatter_all_gather},
    Algorithm{"chain", broadcast, kLinks, "segments pass from neighbour to neighbour: n-2+segments steps",
              always, broadcast_chain},
    Algorithm{"binomial", scatter, kLinks, "subtrees' blocks down a binomial tree: log2(n) steps", always,
              scatter_binomial},
    Algorithm{"binomial", gather, kLinks, "subtrees' blocks up a binomial tree: log2(n) steps", always,
              gather_binomial},
    Algorithm{"bruck", all_gather, kLinks,
              "what a rank has doubles each round: log2(n) steps (Bruck et al. 1997)", always,
              all_gather_bruck},
    Algorithm{"bruck", all_to_all, kLinks,
              "blocks are passed on by the bits of their distance: log2(n) steps (Bruck et al. 1997)", always,
              all_to_all_bruck},
    Algorithm{"direct", reduce, kStaged, "everybody copies in, the root reduces in rank order", fits_piece,
              reduce_staged},
    Algorithm{"direct", broadcast, kStaged, "the root copies in, everybody copies out", fits_piece,
              broadcast_staged},
    Algorithm{"direct", scatter, kStaged, "the root copies in, every rank takes its block",
              fits_piece_per_rank, scatter_staged},
    Algorithm{"direct", gather, kStaged, "everybody copies in, the root takes all blocks", fits_piece,
              gather_staged},
    Algorithm{"direct", all_gather, kStaged, "everybody copies in, everybody takes all blocks", fits_piece,
              gather_staged},
    Algorithm{"direct", all_gather_v, kStaged, "everybody copies in, everybody takes all blocks", fits_piece,
              gather_staged},
    Algorithm{"direct", reduce_scatter, kStaged, "everybody copies in, every rank reduces its block",
              fits_piece_per_rank, reduce_scatter_staged},
    Algorithm{"direct", reduce_scatter_v, kStaged, "everybody copies in, every rank reduces its block",
              fits_piece_per_rank, reduce_scatter_staged},
    Algorithm{"direct", all_to_all, kStaged, "everybody copies in, every rank takes its blocks",
              fits_piece_per_rank, all_to_all_staged},
    Algorithm{"flags", barrier, kStaged, "every rank raises a flag and awaits all: 1 synchronisation", always,
              barrier_flags},
    Algorithm{"direct", reduce, kRegistered,
              "each rank reduces one part of all inputs into the root's output", always, reduce_registered},
    reading({"direct", broadcast, kRegistered, "everybody reads the root's buffer", always,
             broadcast_registered}),
    reading({"direct", scatter, kRegistered, "every rank reads its block of the root's input", always,
             scatter_registered}),
    Algorithm{"direct", gather, kRegistered, "every rank writes its block of the root's output", always,
              gather_registered},
    Algorithm{"direct", all_gather, kRegistered, "every rank writes its block of all outputs", always,
              all_gather_registered},
    Algorithm{"direct", all_gather_v, kRegistered, "every rank writes its block of all outputs", always,
              all_gather_registered},
    reading({"direct", reduce_scatter, kRegistered, "every rank reduces its block of all inputs", always,
             reduce_scatter_registered}),
    reading({"direct", reduce_scatter_v, kRegistered, "every rank reduces its block of all inputs", always,
             reduce_scatter_registered}),
    reading({"direct", all_to_all, kRegistered, "every rank reads its blocks of all inputs", always,
             all_to_all_registered}),
    Algorithm{"hierarchical", all_reduce, kLinks,
              "reduce_scatter on each host, all_reduce across hosts by block, all_gather on each host",
              has_shared_hosts, all_reduce_hierarchical},
    Algorithm{"leaders", all_reduce, kLinks,
              "reduce to each host's leader, recursive doubling among them, broadcast on each host",
              has_shared_hosts, all_reduce_leaders},
    Algorithm{"hierarchical", broadcast, kLinks, "across hosts once, then on each host", has_shared_hosts,
              broadcast_hierarchical},
    Algorithm{"hierarchical", reduce, kLinks, "on each host, then across hosts once", has_shared_hosts,
              reduce_hierarchical},
    Algorithm{"hierarchical", all_gather, kLinks,
              "each host's leader collects, the leaders exchange round a ring, broadcast on each host",
              has_adjacent_hosts, all_gather_hierarchical},
    Algorithm{"hierarchical", reduce_scatter, kLinks,
              "reduce to each host's leader, ring among the leaders, scatter on each host",
              has_adjacent_hosts, reduce_scatter_hierarchical},
    Algorithm{"hierarchical", barrier, kLinks,
              "each host's leader for its ranks, dissemination among leaders", has_shared_hosts,
              barrier_hierarchical},
    Algorithm{"hierarchical", scatter, kLinks, "a host's blocks in one message, dealt there",
              has_shared_hosts, scatter_hierarchical},
    Algorithm{"hierarchical", gather, kLinks, "collected on each host, in one message to the root",
              has_shared_hosts, gather_hierarchical},
    Algorithm{"hierarchical", all_to_all, kLinks,
              "collected by each host's leader, one message between two leaders, dealt there",
              has_shared_hosts, all_to_all_hierarchical},
    Algorithm{"hierarchical", all_gather_v, kLinks,
              "each host's leader collects, the leaders exchange round a ring, broadcast on each host",
              has_adjacent_hosts, all_gather_hierarchical},
    Algorithm{"hierarchical", reduce_scatter_v, kLinks,
              "reduce to each host's leader, ring among the leaders, scatter on each host",
              has_adjacent_hosts, reduce_scatter_hierarchical},
    Algorithm{"pull_ring", all_reduce, kStaged,
              "sums, then results, read from the left neighbour alone (for devices, or two ranks): 2(n-1) "
              "phases a block",
              fits_pull_ring, all_reduce_pull_ring, 2, true},
    Algorithm{"alone", all_reduce, kRegistered,
              "rank 0 reduces all inputs into all outputs (for ranks that take turns on one device)", always,
              all_reduce_alone, 0},
    reading(
        {"direct", broadcast, kPulled, "everybody reads the root's buffer", always, broadcast_registered}),
    reading({"direct", scatter, kPulled, "every rank reads its block of the root's input", always,
             scatter_registered}),
    reading({"direct", gather, kPulled, "the root reads everybody's block", always, gather_pulled}),
    reading({"direct", all_gather, kPulled, "every rank reads everybody's block", always, all_gather_pulled}),
    reading(
        {"direct", all_gather_v, kPulled, "every rank reads everybody's block", always, all_gather_pulled}),
    reading({"direct", all_to_all, kPulled, "every rank reads its blocks of all inputs", always,
             all_to_all_registered}),
    Algorithm{"shared", broadcast, kRegistered,
              "the root writes a part of every output, everybody reads the rest of its buffer", always,
              broadcast_shared},
};

const char* medium_name(Medium medium) {
  switch (medium) {
    case Medium::links:
      return "over links";
    case Medium::domain_staged:
      return "through staging memory";
    case Medium::domain_registered:
      return "on registered memory";
    case Medium::domain_pulled:
      return "on memory that ranks read through the kernel";
  }
  return "";
}

std::string place_name(Collective collective, Medium medium) {
  return std::string(name_of(collective)) + ' ' + medium_name(medium);
}

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

Result<const Algorithm*> find_algorithm(Collective collective, std::initializer_list<Medium> media,
                                        std::string_view name) {
  std::vector<std::string_view> names;
  std::string offers;
  for (const Medium medium : media) {
    const std::size_t before = names.size();
    for (const Algorithm& row : kAlgorithms) {
      if (row.collective != collective || row.medium != medium) continue;
      if (row.name == name) return &row;
      offers += names.size() > before ? ", " : "; " + place_name(collective, medium) + " has ";
      offers += row.name;
      names.push_back(row.name);
    }
  }
  const bool known_elsewhere = std::any_of(std::begin(kAlgorithms), std::end(kAlgorithms),
                                           [&](auto& row) { return row.name == name; });
  const std::string place =
      media.size() == 1 ? place_name(collective, *media.begin()) : std::string(name_of(collective));
  std::string message = "algorithm \"" + std::string(name) + "\" ";
  message += known_elsewhere ? "does not exist for " + place : "is unknown";
  message += names.empty() ? "; " + place + " has no algorithms at all" : offers;
  if (!known_elsewhere && !names.empty())
    message += " (did you mean " + std::string(nearest(name, names)) + "?)";
  return Status(ErrorCode::invalid_argument, message);
}

Result<const Algorithm*> find_algorithm(Collective collective, Medium medium, std::string_view name) {
  return find_algorithm(collective, {medium}, name);
}

}  // namespace lockstep::internal
