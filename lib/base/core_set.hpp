// CoreSet: the processor cores that a thread may run on.
#pragma once

#include <bitset>
#include <cstddef>

namespace lockstep::internal {

/// As many as the kernel's default mask names; cores beyond are not told apart.
inline constexpr std::size_t kMaxCores = 1024;
using CoreSet = std::bitset<kMaxCores>;

/// Of the calling thread.
CoreSet allowed_cores();

}  // namespace lockstep::internal
