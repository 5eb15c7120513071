// --startup: what it takes to start: time, memory, descriptors and threads of the ranks that --ranks or
// --threads ask for.
#pragma once

#include <ostream>

#include "bench/options.hpp"

namespace lockstep::bench {

/// Starts the ranks, and has them do a barrier and two all_reduces, each the first of its kind, so that what
/// is connected lazily is connected. Prints a line to `out`, or JSON as `options` ask for it. Gives the exit
/// status.
int measure_startup(const Options& options, std::ostream& out);

}  // namespace lockstep::bench
