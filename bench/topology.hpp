// lockstep-bench --topology: the hosts of a job, what they consist of, and what carries the links.
#pragma once

#include <iosfwd>

#include "lockstep/communicator.hpp"

namespace lockstep::bench {

/// Collective; rank 0 prints.
void print_topology(Communicator& communicator, std::ostream& out);

}  // namespace lockstep::bench
