// Limits of the engine, each with its reason.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/env.hpp"
#include "transports/domain.hpp"

namespace lockstep::internal {

/// Collectives of one communicator that run side by side, and as many urgent ones; later ones queue. Enough
/// for every bucket of a large model in flight.
inline constexpr std::size_t kMaxInFlight = 64;

/// A point-to-point message up to this size travels with its offer and is buffered by the receiver: one
/// latency instead of three.
inline constexpr std::size_t kEagerBytes = 4096;
/// Messages that may lie unmatched at a receiver (bounds its memory to kMaxUnexpected * kEagerBytes = 4 MiB).
inline constexpr std::size_t kMaxUnexpected = 1024;

/// An operation that has not moved for this long asks around: compares calls, contacts the peers it waits
/// for.
inline constexpr Nanos kProbeAfter = 50'000'000;
/// And again this often.
inline constexpr Nanos kProbeEvery = 200'000'000;
/// What a peer says of whom it waits for counts for so long: where it still waits it has said so again.
inline constexpr Nanos kWaitCounts = 2 * kProbeEvery;
/// What a revoke copies of a message that is half sent: programs cut what is longer, but for direct ones.
/// Peers in the midst of such a block hear of the revoke on the links for urgent calls.
inline constexpr std::size_t kMostAdopted = 16 << 20;
/// How long an operation that a peer has passed by, or whose link has ended, waits to be told why, before it
/// ends with what it knows itself.
inline constexpr Nanos kExplanationWait = 1'000'000'000;
/// How long a rank that found another fingerprint than its own waits to read what its peer has called.
inline constexpr Nanos kRecordWait = 1'000'000'000;
/// Links that nothing is awaited from are looked at this often while messages move or a program asks for the
/// state: a revoke ends traffic too that needs none of them.
inline constexpr Nanos kListenEvery = 20'000'000;
/// A waiter looks at the clock once in so many passes that moved something, as does who begins so many
/// messages: often enough for a deadline beside much traffic, and too seldom for short calls to notice.
inline constexpr unsigned kMovesPerLook = 32;
/// A sleeping waiter looks around at least this often, so that no lost wake-up can hang it.
inline constexpr Nanos kLongestSleep = 100'000'000;

/// How long a failing call waits for peers to stop using its memory, before that memory is replaced under
/// them or the link to them is cut.
inline constexpr Nanos kQuiesceWait = 500'000'000;
/// How long the end of a communicator waits for peers that have not taken in why it was revoked.
inline constexpr Nanos kLastWords = 200'000'000;
/// As much where links to them are still being made, which takes longer on a busy machine.
inline constexpr Nanos kLastLinks = 2'000'000'000;
/// How long a revoked communicator goes on telling its peers why. Some it has to connect to first, which may
/// take seconds on a busy machine; a rank that is not told waits until its own deadline.
inline constexpr Nanos kDrainTime = 10'000'000'000;

/// Ranks up to which each tells all others of a revoke itself; beyond, those that it is linked to and a few
/// more, who pass it on. A link costs descriptors and memory, and a failure is no time for many new ones.
inline constexpr int kToldDirectly = 16;

/// Urgent calls that have not moved for this long wait for a peer, which may have to end others first: these
/// go on. Longer than a link that is full stays quiet, and short beside a bucket's way.
inline constexpr Nanos kUrgentPause = 2'000'000;

/// Members up to which the payload may ride in the flags' lines: every rank reads every line.
inline constexpr int kMaxInlineMembers = 64;
/// And up to which it may take several lines.
inline constexpr int kMaxLongInlineMembers = 8;
/// Two members share so few lines that copies and one flag take less from here on.
inline constexpr std::size_t kInlinePayloadOfTwo = kInlinePayload + 7 * kTailPayload;
static_assert(kInlinePayloadOfTwo <= kLongInlinePayload);

/// Payload bytes that may ride in the flags' lines of a domain of so many; 0: none, and no barrier either.
constexpr std::size_t inline_bytes(int members) {
  return members <= 2                       ? kInlinePayloadOfTwo
         : members <= kMaxLongInlineMembers ? kLongInlinePayload
         : members <= kMaxInlineMembers     ? kInlinePayload
                                            : 0;
}

/// Tries of a blocking call before it looks whether a peer needs its processor: a peer that is about to
/// answer from another one has done so by then.
inline constexpr int kPausesBeforeLook = 16;

/// Blocks (kReduceBlockBytes of each source) that a blocking call moves before it goes on as a waiter, which
/// looks at the clock: milliseconds, beside which that costs nothing.
inline constexpr int kBlocksInPlace = 64;

/// Calls that an engine knows again, and up to which size of its program what one needs is kept for the next
/// like it: half a MiB in all.
inline constexpr std::size_t kKnownCalls = 64;
inline constexpr std::size_t kKeptProgramBytes = 8 << 10;
/// What is only started is tried in place up to this size, which takes no longer than to wake a thread for
/// it. Longer calls are to run beside their caller.
inline constexpr std::size_t kBytesInPlace = 256 << 10;
/// Programs kept per communicator, and what they may take together.
inline constexpr std::size_t kMaxCachedPrograms = 512;
inline constexpr std::size_t kMaxCachedProgramBytes = 3 << 20;
/// One pipelined message, where LOCKSTEP_SEGMENT does not say.
inline constexpr std::uint64_t kSegmentBytes = 256 << 10;
/// Scratch memory kept for the next operations, beside so much by each.
inline constexpr std::size_t kKeptScratchBytes = 2 << 20;
inline constexpr std::size_t kScratchOfOperation = 2 << 10;

/// Bytes of each source that one uninterrupted kernel call reduces or scales: bounds how long a starting
/// thread waits for the engine's lock.
inline constexpr std::size_t kReduceBlockBytes = 256 << 10;

}  // namespace lockstep::internal
