#include "collectives/verify/verify.hpp"

#include "collectives/verify/results.hpp"
#include "collectives/verify/runs.hpp"
#include "collectives/verify/structure.hpp"

namespace lockstep::internal {
namespace {

/// Stands for a count that a rank does not know: a program that uses it leaves every space.
constexpr std::uint64_t kUnknownCount = std::uint64_t{1} << 40;

/// The shape as `rank` sees it: see verify_algorithm for the v-collectives.
Shape shape_for(const Shape& world, int rank) {
  Shape shape = world;
  shape.rank = rank;
  const auto ranks = static_cast<std::size_t>(world.world), own = static_cast<std::size_t>(rank);
  const bool root_knows =
      world.collective == Collective::scatter_v || world.collective == Collective::gather_v;
  if (root_knows && rank != world.root) {
    shape.counts.assign(ranks, kUnknownCount);
    shape.counts[own] = world.counts[own];
  }
  if (world.collective == Collective::all_to_all_v) {
    shape.recv_counts.resize(ranks);
    for (std::size_t peer = 0; peer < ranks; ++peer) {
      shape.counts[peer] = world.counts[(own + 2 * peer) % ranks];
      shape.recv_counts[peer] = world.counts[(peer + 2 * own) % ranks];
    }
  }
  return shape;
}

}  // namespace

std::string verify(const ProgramSet& set, int repeats) {
  if (std::string finding = check_structure(set); !finding.empty()) return finding;
  return set.medium == Medium::links ? run_over_links(set) : run_in_domain(set, repeats);
}

ProgramSet build_all(const Algorithm& algorithm, const Shape& shape_of_any_rank) {
  ProgramSet set;
  set.medium = algorithm.medium;
  for (int rank = 0; rank < shape_of_any_rank.world; ++rank) {
    set.shapes.push_back(shape_for(shape_of_any_rank, rank));
    set.programs.push_back(algorithm.build(set.shapes.back()));
  }
  return set;
}

std::string verify_algorithm(const Algorithm& algorithm, const Shape& shape_of_any_rank) {
  ProgramSet set = build_all(algorithm, shape_of_any_rank);
  if (std::string finding = verify(set); !finding.empty()) return "out of place: " + finding;
  set.in_place = true;
  bool differs = false;
  for (const Shape& shape : set.shapes) differs = differs || in_place_layout(shape).exists;
  if (!differs) return {};
  std::string finding = verify(set);
  return finding.empty() ? "" : "in place: " + finding;
}

}  // namespace lockstep::internal
