// Limits of the memory floor, with the reason beside each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::internal {

/// Freed memory kept for the next allocate() of the same size: first touch of fresh pages runs at 0.3 to 2
/// GB/s, zeroing touched ones at 50. Large enough for the buckets of a reducer that is rebuilt, small enough
/// not to matter beside a model.
inline constexpr std::size_t kReuseBytes = std::size_t{64} << 20;

/// Longest key of the descriptor service: a prefix and a few hexadecimal numbers.
inline constexpr std::size_t kMaxDescriptorKeyBytes = 128;

/// A descriptor service's word, in hexadecimal digits: 128 bits, which nobody guesses.
inline constexpr std::size_t kDescriptorWordBytes = 32;

/// Descriptors offered under one key: a memory descriptor and a bell, with room for two more.
inline constexpr std::size_t kMaxDescriptorsPerKey = 4;

/// Connections that the descriptor service holds at once; above it the oldest is dropped. One per fetch under
/// way: far above the ranks of a host.
inline constexpr std::size_t kMaxDescriptorClients = 1024;

/// How long the descriptor service stops accepting when this process ran out of descriptors or memory,
/// instead of spinning on the refusal.
inline constexpr std::int64_t kAcceptPauseNanos = 50'000'000;

}  // namespace lockstep::internal
