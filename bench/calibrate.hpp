// `lockstep-bench --calibrate`: measures this machine and writes what the library chooses algorithms by
// (docs/tuning.md).
#pragma once

#include <iosfwd>

#include "bench/options.hpp"

namespace lockstep::bench {

/// Measures worlds of 2 and 4 ranks over shared memory and TCP, fits the costs, and writes the model to
/// options.json (empty: the file that the library looks for; "-": standard output). A summary goes to `out`.
/// Takes less than 20 s, unless options.iterations says how many rounds to measure. Gives the exit status.
int calibrate(const Options& options, std::ostream& out);

}  // namespace lockstep::bench
