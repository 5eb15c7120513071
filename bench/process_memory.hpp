// How much memory this process uses.
#pragma once

#include <cstdint>

namespace lockstep::bench {

/// Its share of what is in use: what several processes map counts for each in part. Throws
/// std::runtime_error where the kernel does not say.
std::uint64_t proportional_bytes();

}  // namespace lockstep::bench
