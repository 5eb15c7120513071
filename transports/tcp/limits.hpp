// Limits and sizes of the TCP transport, with the reason beside each. Sizes were tuned with two ranks over
// loopback.
#pragma once

#include <chrono>
#include <cstddef>

#include "transports/frame.hpp"

namespace lockstep::internal {

/// What one receive asks for when it looks for a header: small messages arrive whole in one system call, and
/// little of a large one is copied twice.
inline constexpr std::size_t kPeekBytes = 16 << 10;
/// What a receive of a large payload may take of the message behind it: its header, which then costs no call
/// of its own. More would be copied twice, and would make two small receives of a large one.
inline constexpr std::size_t kBehindBytes = sizeof(FrameHeader);
/// One send moves at most this much, so that a rank that sends and receives alternates between the two. Over
/// loopback each slice ends in a short packet, which costs as much as a long one: slices of 256 KiB took 1.1
/// times as long for blocks of 512 KiB and more.
inline constexpr std::size_t kSendSlice = 1 << 20;
/// One receive moves up to this much. When receiving falls behind sending, data wait for the congestion
/// window.
inline constexpr std::size_t kReceiveSlice = 512 << 10;
/// Largest buffer for payload that is lent (Link::borrow). It stays in a core's cache.
inline constexpr std::size_t kBounceBytes = kReceiveSlice;

/// Messages up to this size travel over the first socket even when a peer has several.
inline constexpr std::size_t kStripeThreshold = 128 << 10;
/// Larger ones are dealt to the sockets in units of this size (a multiple of every element size).
inline constexpr std::size_t kStripeUnit = 64 << 10;
/// Sockets to one peer (LOCKSTEP_TCP_SOCKETS). More only cost memory.
inline constexpr int kMaxSockets = 16;

/// Addresses that a rank publishes; a host with more has virtual ones that peers need not try.
inline constexpr std::size_t kMaxAddresses = 8;
/// A peer's next address is tried when the last has not answered for so long: a network without a route back
/// must not cost its whole deadline. Those under way are not given up.
inline constexpr std::chrono::milliseconds kNextAddressDelay{250};
/// At start one rank of each host tries whether it reaches the other hosts; an address that has not answered
/// for so long does not count as a way there.
inline constexpr std::chrono::seconds kProbeDeadline{10};
/// How long a rank that knows of a closed way waits for the others to know too, before it ends.
inline constexpr std::chrono::milliseconds kReadDeadline{5'000};
/// A host tries so many others, those that follow it. Of larger jobs every rank still hears of a fault.
inline constexpr int kProbedHosts = 64;
/// Hosts up to which the matrix of who reaches whom is printed whole; beyond only its gaps.
inline constexpr std::size_t kMatrixHosts = 16;
/// Gaps that an error explains, address by address.
inline constexpr std::size_t kExplainedGaps = 8;
/// Connecting and its handshake: longer than the accepting side's deadline, because a whole job may stand in
/// its queue. A peer that has taken so long for the handshake alone is late and not lost: it is called again,
/// as long as somebody waits for it.
inline constexpr std::chrono::seconds kConnectDeadline{30};
/// A connection that broke in the handshake is tried so often; a refused one never again, because peers
/// listen before they publish.
inline constexpr int kConnectAttempts = 3;
/// But for a connection that lasted as long as an acceptor without room waits for a hello: on a machine that
/// gives its ranks no turn, this one was late with it. Such ones are tried again for so long. (With 8
/// processes of 512 ranks each on 2 cores some hellos were more than 5 s late, and three such attempts ended
/// a job.)
inline constexpr std::chrono::seconds kLateHelloPatience{60};
/// Channels of ended communicators that a rank remembers, so as to hang up on peers that call late: a
/// communicator has three for each of its sockets to a peer. Those before wait for their deadline.
inline constexpr std::size_t kForgottenChannels = 16 << 10;
/// How long a connection whose communicator has ended is kept for a peer that has yet to read what was sent
/// over it. Then the system goes on as with one of a process that ended: by its own, shorter limits.
inline constexpr std::chrono::seconds kCloseLinger{60};
/// The lower rank of a pair connects. A higher one that waits in vain asks it to after this long (any-source
/// receives).
inline constexpr std::chrono::milliseconds kKnockDelay{50};
/// And again, as long as no connection comes: the peer may have failed to make one and left, which nobody
/// else tells who waits for a message alone.
inline constexpr std::chrono::seconds kKnockAgain{1};

}  // namespace lockstep::internal
