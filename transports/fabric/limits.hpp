// Limits of links over a fabric (UCX, verbs), with the reason beside each. Both ends of a link must agree on
// them.
#pragma once

#include <cstddef>

#include "lib/base/env.hpp"

namespace lockstep::internal {

/// One small message: what every fabric sends eagerly and in one. UCX's TCP takes 8 KiB with its own header;
/// for the last bytes of a full 8 KiB it makes a rendezvous (64 KiB then take 212 us instead of 30). A
/// multiple of 64; payload in it starts at multiples of 16.
inline constexpr std::size_t kSlotBytes = (8 << 10) - 256;
/// Pieces that a peer may have under way or unread: bounds the receiver's memory, and covers
/// kPiecewiseBytes of a message without a word back.
inline constexpr std::size_t kPieceCredits = 16;
/// Messages of the links' own that may be under way beside the pieces: a greeting, two returns of credits,
/// the landings, and a farewell.
inline constexpr std::size_t kOwnCredits = 8;
/// Transfers straight into memory that a receiver has open at a time: the next is granted while one runs.
inline constexpr std::size_t kLandings = 4;
static_assert(kOwnCredits >= kLandings + 4);

/// Small messages that may be under way to a link in all, and receives to be posted for them.
inline constexpr std::size_t kLinkSlots = kPieceCredits + kOwnCredits;

/// Payloads up to this size travel as pieces and are copied at the receiver; larger ones wait for a landing,
/// which costs a round trip and saves the copies.
inline constexpr std::size_t kPiecewiseBytes = 64 << 10;

/// One transfer into the receiver's own memory is no larger: what a failing call may have to wait for.
inline constexpr std::size_t kDirectLandingBytes = 16 << 20;
/// One transfer into memory of the link, where it is reduced from: all of them stay in a core's cache.
inline constexpr std::size_t kBounceLandingBytes = 256 << 10;

/// Registrations of the callers' memory kept for the next call.
inline constexpr std::size_t kKeptRegistrations = 256;

/// What a fabric needs to know of a landing to write there; longer keys are not told, and such landings take
/// messages.
inline constexpr std::size_t kMostKeyBytes = 224;

/// How long the end of a transport waits for what it sent to be on its way.
inline constexpr Nanos kLinger = 1'000'000'000;

}  // namespace lockstep::internal
