// The two ways to run a world of programs, each proving order and the absence of deadlock for its medium.
// Both return an empty string or the first finding. The programs must have passed check_structure.
#pragma once

#include <string>

#include "collectives/verify/verify.hpp"

namespace lockstep::internal {

/// Messages. A send completes only together with its receive (no buffering anywhere), which is the strictest
/// a link may be, so a program that ends here ends on every link. The pairing of messages is fixed by the
/// programs, so if one order of steps ends, every order does, and any order shows the same values provided
/// that no two unordered steps touch the same memory. That is shown from the rank's own order alone (lanes
/// and `after`): a rank's memory is safe whatever its peers do. A barrier is complete at a rank that has
/// heard, in a chain of messages, from all.
std::string run_over_links(const ProgramSet& set);

/// Shared memory, `calls` calls one after the other. Order between ranks comes from awaiting a phase alone.
/// Beyond what verify() promises: a rank that ends a call knows that every member has entered it, and so has
/// left the call before. Hence whatever programs follow one another, nobody still reads the half of the
/// staging area that a call two later writes.
std::string run_in_domain(const ProgramSet& set, int calls);

}  // namespace lockstep::internal
