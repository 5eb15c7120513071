// Limits of the verbs transport, with the reason beside each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transports/fabric/limits.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// Work requests that a queue pair may have under way: enough to keep a wire busy between completions.
inline constexpr std::uint32_t kSendDepth = 128;
/// Every so many requests one asks for a completion, which retires those before it.
inline constexpr std::uint32_t kSignalEvery = 16;
static_assert(kSendDepth >= 2 * kSignalEvery, "one half is retired while the other is posted");

/// Receives that one channel of a peer may use: its messages, and the word of each transfer. All of them.
inline constexpr std::uint32_t kReceivesOfChannel = kLinkSlots + kLandings;
inline constexpr std::uint32_t kReceivesOfPeer = kChannels * kReceivesOfChannel;

/// Bytes that travel inside the work request: a note with a frame's header and a small payload. Devices that
/// take less refuse a queue pair with more: Broadcom's take 96, some none.
inline constexpr std::array<std::uint32_t, 3> kInlineBytes{128, 96, 0};
/// One RDMA write is no larger, whatever the device allows: a lost packet repeats little.
inline constexpr std::uint64_t kWriteBytes = 1 << 20;
/// Memory that writes from unregistered memory pass through, for each wire: so many pieces of kStageBytes.
inline constexpr std::size_t kStages = 4;
inline constexpr std::size_t kStageBytes = 256 << 10;

/// How often a packet is sent again when it is not acknowledged in time (LOCKSTEP_VERBS_TIMEOUT). 7 would
/// mean for ever with some devices.
inline constexpr std::uint8_t kRetries = 6;
/// Credits keep receives posted, so that this never happens; 0.64 ms and a few tries for devices that are
/// late.
inline constexpr std::uint8_t kReceiverNotReadyTimer = 12;
inline constexpr std::uint8_t kReceiverNotReadyRetries = 6;

/// A job takes verbs unasked where its processes may lock this much: slots and blocks of many peers, and
/// buffers.
inline constexpr std::size_t kEnoughLockedBytes = std::size_t{1} << 30;

}  // namespace lockstep::internal
