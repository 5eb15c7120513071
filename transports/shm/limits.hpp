// Limits of the shared-memory transport, with the reason beside each.
#pragma once

#include <cstddef>

#include "lib/base/env.hpp"

namespace lockstep::internal {

/// Bytes of one ring: one direction of one channel of a pair. Both ends of it fit the first-level cache of a
/// core, and a connected pair costs 64 KiB a channel.
inline constexpr std::size_t kRingBytes = std::size_t{32} << 10;

/// Messages in a ring begin at multiples of this: a header never wraps, and payloads are aligned for every
/// element type.
inline constexpr std::size_t kRingGranule = 64;

/// Bytes after which either end of a ring tells the other: a quarter of the ring, so that copying in and
/// copying out overlap.
inline constexpr std::size_t kRingTurnBytes = kRingBytes / 4;

/// Most segments of one member that stay mapped; above it the least recently used is unmapped. Far more than
/// the buffers of the operations that can be in flight. Many members may together come to the kernel's limit
/// on mappings (65,530) or to the end of memory first: then the least recently used of all goes.
inline constexpr std::size_t kMaxMappedSegments = 1024;

/// A segment is handed over by its owner's serving thread within microseconds. Where that takes so long, the
/// owner may be stopped; others want the engine's lock, and the call may have come to its deadline: whether
/// it has come is looked for again at each step.
inline constexpr int kSegmentPatienceMs = 20;

/// How often a member that waits for others in set-up looks whether all still live.
inline constexpr Nanos kLivenessNanos = 100'000'000;

}  // namespace lockstep::internal
