// Counts every operator new of a test program, the library's included: it is linked in.
#pragma once

#include <cstdint>

namespace lockstep::testing {

/// Allocations of this process so far.
std::uint64_t allocations();

}  // namespace lockstep::testing
