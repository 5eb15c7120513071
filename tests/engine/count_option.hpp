// Numbers on the command line of a test program: how much its long tests do, and from which seed.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::testing {

/// What follows `name` (--operations, --rounds or --seed) on the command line, or `by_default` where it says
/// nothing.
std::uint64_t count_option(const std::string& name, std::uint64_t by_default);

}  // namespace lockstep::testing
