// --operations N on the command line of a test program: how many operations its long tests do.
#pragma once

#include <cstdint>

namespace lockstep::testing {

/// N, or `by_default` where the command line says nothing.
std::uint64_t count_option(std::uint64_t by_default);

}  // namespace lockstep::testing
