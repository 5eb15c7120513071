// Measurements of --calibrate that need no ranks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::bench {

/// Binds this thread to the index-th of the cores that it may use.
void bind_to_core(std::size_t index);

/// Microseconds worth spinning before a sleep: twice what waking a sleeper on another core costs.
std::int64_t worthwhile_spin();

/// Bytes from which on a copy by stores past the caches, and reading its result once, is faster than by
/// ordinary stores. 0 where it never is, or the processor has no such stores.
std::uint64_t non_temporal_from();

}  // namespace lockstep::bench
