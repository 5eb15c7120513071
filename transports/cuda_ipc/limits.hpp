// Limits of device memory shared between processes, with the reason beside each.
#pragma once

#include <cstddef>

namespace lockstep::internal {

/// Allocations of peers that a process keeps mapped, on all devices together; above it the one not used for
/// longest goes. A mapping takes address space and an entry of the driver's tables, a new one 0.1 to 1 ms of
/// the driver.
inline constexpr std::size_t kMaxImportedAllocations = 256;

/// The owner's serving thread answers within microseconds; one that takes this long is of a stopped process.
inline constexpr int kImportTimeoutMs = 10'000;

}  // namespace lockstep::internal
