// Limits of start-up: what the store and the handshakes accept. All bytes from outside are hostile until the
// handshake is over, and a buggy peer may follow it, so every length is checked against one of these before
// it is used.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep::internal {

/// Who waits longer for ranks waits for ever, and moments as far as that can be added up.
inline constexpr std::chrono::milliseconds kLongestStart = std::chrono::hours(24 * 365);

/// No handshake message is longer, so that a stranger costs one small buffer.
inline constexpr std::size_t kMaxHandshakeBytes = 160;
/// A stranger has this long to finish the handshake; long enough for a congested link, short enough to shed
/// port scanners.
inline constexpr std::chrono::milliseconds kHandshakeDeadline{5'000};
/// A client that was answered takes its own proof for the end, and sends data behind it: hung up on, it would
/// take this rank for dead. So it has longer than any client keeps trying, also on a machine that gives it no
/// turn. Where all of kMaxHalfOpen places are taken, it has kHandshakeDeadline.
inline constexpr std::chrono::milliseconds kProofDeadline{60'000};
/// Connections that have not finished their handshake. More wait in the kernel's backlog.
inline constexpr std::size_t kMaxHalfOpen = 64;
/// Where all of them are taken, one that has not said its hello for so long makes room for the next: a rank
/// says it at once, and tries again. Longer than the way to any host, short enough that a thousand silent
/// strangers hold a rank up for seconds only.
inline constexpr std::chrono::milliseconds kHelloPatience{250};
/// How long nobody is accepted after descriptors ran out.
inline constexpr std::chrono::milliseconds kAcceptPause{50};

/// How long a call waits for a store whose server, or whose file's lock, is not to be had: the process that
/// keeps it is alive, but may be busy.
inline constexpr std::chrono::milliseconds kStorePatience{10'000};
/// A start whose time is over has so long to tell the other ranks why, and to hear it from them; the machine
/// may be busy.
inline constexpr std::chrono::milliseconds kLastMoment{2'000};
/// After so long it is spoken of.
inline constexpr std::chrono::milliseconds kLateAfter{5'000};

/// A key is a name, not data.
inline constexpr std::size_t kMaxKeyBytes = 1 << 10;
/// A value is an address or a small table; bulk data belongs into collectives.
inline constexpr std::size_t kMaxValueBytes = 1 << 20;
/// A rank's notice to all others, within its description in the store.
inline constexpr std::size_t kMaxNoticeBytes = kMaxValueBytes / 2;
/// Keys in one store, which keeps them to the end of the job.
inline constexpr std::size_t kMaxKeys = 1 << 18;
/// Of one rank: a dozen from its start to its end. The others, and those of smaller worlds, are left to
/// communicators over UCX, which set one more each.
inline constexpr std::size_t kKeysPerRank = 16;
/// Ranks in a job: whom the store has room for.
inline constexpr std::int32_t kMaxWorld = kMaxKeys / kKeysPerRank;
/// Keys and values of one store together: what rank 0 may lose to it.
inline constexpr std::size_t kMaxTotalBytes = 64 << 20;

/// One request to the store: a few of the largest values fit.
inline constexpr std::size_t kMaxRequestBytes = 4 << 20;
/// One reply: every value of a full store, with the framing of its entries.
inline constexpr std::size_t kMaxReplyBytes = kMaxTotalBytes + kMaxKeys * 8 + 64;
/// Unread replies of one client; a client that lets more pile up is cut off.
inline constexpr std::size_t kMaxUnsentBytes = 2 * kMaxReplyBytes;

/// Text that says why a rank was lost or refused.
inline constexpr std::size_t kMaxEvidenceBytes = 512;

/// The secret file: room for any sensible passphrase.
inline constexpr std::size_t kMaxSecretBytes = 4 << 10;

}  // namespace lockstep::internal
