// What lockstep-bench tells without running anything: the algorithms there are, and the programs that would
// run. Looks into the library.
#pragma once

#include <iosfwd>

#include "bench/options.hpp"
#include "collectives/programs/program.hpp"

namespace lockstep::bench {

/// With its place in front, as --algorithm takes it: "links/ring".
std::string full_name(const internal::Algorithm& algorithm);

/// Every algorithm by collective. Gives the exit status.
int list_algorithms(std::ostream& out);

/// For every operation and size of `options`: the programs of rank 0 and of the last rank. Gives the exit
/// status.
int print_programs(const Options& options, std::ostream& out);

}  // namespace lockstep::bench
