#include "bench/programs.hpp"

#include <iomanip>
#include <ostream>
#include <set>

#include "bench/choice.hpp"
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
    case Medium::domain_pulled:
      return "shared memory, private buffers, read through the kernel";
  }
  return "";
}

void print_one(const Algorithm& row, Shape shape, std::ostream& out) {
  out << row.name << " (" << name_of_medium(row.medium) << "): " << row.description << "\n";
  for (const int rank : std::set<int>{0, shape.world - 1}) {
    shape.rank = rank;
    out << "rank " << rank << "\n" << to_string(row.build(shape)) << "\n";
  }
}

}  // namespace

std::string full_name(const Algorithm& algorithm) {
  return internal::place_of(algorithm.medium) + std::string(algorithm.name);
}

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

int print_programs(const Options& options, std::ostream& out) {
  const Ground ground = ground_of(options);
  const DataType type = options.types.front();
  for (const Operation* operation : options.operations) {
    const bool sized = operation->source != Source::none;
    for (const std::uint64_t bytes : sized ? sweep(options) : std::vector<std::uint64_t>{0}) {
      const std::uint64_t count = operation->count(bytes, type, ground.capabilities.world);
      const Choice choice = choose(ground, options, *operation, type, options.redops.front(), count);
      out << "== " << operation->name << ", " << ground.capabilities.world << " ranks, transport "
          << ground.transport << ", " << count << " x " << name_of(type) << ": "
          << algorithm_name(ground, choice, are_registered(options, *operation, options.redops.front()))
          << "\n";
      const internal::Selection& selection = choice.selection;
      for (const Algorithm* row : {selection.links, selection.staged, selection.registered}) {
        if (row != nullptr) print_one(*row, choice.shape, out);
      }
    }
  }
  return 0;
}

}  // namespace lockstep::bench
