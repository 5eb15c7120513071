#include "bench/explain.hpp"

#include <algorithm>
#include <iomanip>
#include <ostream>
#include <set>

#include "collectives/programs/program.hpp"

namespace lockstep::bench {
namespace {

using internal::Algorithm;
using internal::Medium;
using internal::Shape;

std::string_view name_of_medium(Medium medium) {
  switch (medium) {
    case Medium::links:
      return "links";
    case Medium::domain_staged:
      return "shared memory, private buffers";
    case Medium::domain_registered:
      return "shared memory, registered buffers";
  }
  return "";
}

// The rows that `options` names, of those that support the shape.
std::vector<const Algorithm*> candidates(const Options& options, const Shape& shape) {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : internal::algorithms()) {
    const bool named = options.algorithm.empty() || options.algorithm == row.name;
    const bool carried = options.transport != "tcp" || row.medium == Medium::links;
    if (row.collective == shape.collective && named && carried && row.supports(shape)) rows.push_back(&row);
  }
  return rows;
}

void explain_one(const Algorithm& row, Shape shape, std::ostream& out) {
  out << row.name << " (" << name_of_medium(row.medium) << "): " << row.description << "\n";
  for (const int rank : std::set<int>{0, shape.world - 1}) {
    shape.rank = rank;
    out << "rank " << rank << "\n" << to_string(row.build(shape)) << "\n";
  }
}

}  // namespace

int list_algorithms(std::ostream& out) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    out << name_of(collective) << "\n";
    for (const Algorithm& row : internal::algorithms()) {
      if (row.collective != collective) continue;
      out << "  " << std::left << std::setw(20) << row.name << " " << row.description << " ["
          << name_of_medium(row.medium) << "]\n";
    }
  }
  return 0;
}

int explain(const Options& options, std::ostream& out) {
  const int world = std::max({options.ranks, options.threads, 1});
  for (const Operation* operation : options.operations) {
    for (const std::uint64_t bytes : sweep(options)) {
      Shape shape;
      shape.world = world;
      shape.root = options.root;
      shape.count = operation->count(bytes, options.types.front(), world);
      int i = 0;
      while (i < kCollectiveCount && name_of(static_cast<Collective>(i)) != operation->name) ++i;
      if (i == kCollectiveCount) break;  // sendrecv is no program
      shape.collective = static_cast<Collective>(i);
      out << "== " << operation->name << ", " << world << " ranks, " << shape.count << " elements\n";
      for (const Algorithm* row : candidates(options, shape)) explain_one(*row, shape, out);
    }
  }
  return 0;
}

}  // namespace lockstep::bench
