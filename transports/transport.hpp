// The contract between the engine and what moves its bytes: links (messages between two ranks) and domains
// (shared memory).
//
// A transport never blocks, owns no thread, reads no clock and draws no randomness (it gets an Env). It knows
// nothing of collectives. All calls on one communicator's transport come from one thread at a time (the
// engine's lock).
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "lib/base/status.hpp"
#include "transports/domain.hpp"
#include "transports/frame.hpp"

namespace lockstep::internal {

/// How much of a message has been handed to the link; zero-initialised for a new message.
struct SendCursor {
  std::size_t header_bytes = 0;
  std::size_t payload_bytes = 0;
  std::uint64_t number = 0;  ///< The link's own.
};

/// Which of the independent streams between a pair: collectives travel in program order; point-to-point may
/// not wait behind them, nor may urgent collectives, which have an order of their own.
enum class Channel : std::uint8_t { collective = 0, point_to_point = 1, urgent = 2 };
inline constexpr std::array kEachChannel{Channel::collective, Channel::point_to_point, Channel::urgent};
inline constexpr std::size_t kChannels = kEachChannel.size();

/// The message that a receiver expects next.
struct Awaited {
  FrameHeader header;          ///< As the sender writes it, bit for bit.
  std::span<std::byte> place;  ///< Where its payload will be read to; empty where it will be borrowed.
  /// Whether peek() may write as many bytes before `place` as a header has: header and payload then come in
  /// one piece.
  bool room_before = false;
};

/// An ordered, reliable path of messages between this rank and one peer, for one communicator and channel.
/// Errors are final for their direction: once a send failed every later one does, and so with receiving. What
/// came before the peer was lost can still be read. ErrorCode::peer_lost when the stream ended; internal or
/// unauthorized for bytes that are not frames.
class Link {
 public:
  virtual ~Link() = default;

  /// Hands over a message: header, then payload (header.bytes == payload.size(), or 0 payload). True when all
  /// of it was accepted: the payload may then be reused. False: nothing more fits now, or, where the cursor
  /// moved, perhaps more does; call again with the same arguments and cursor before any other send on this
  /// link, or give it up with Transport::withdraw. After that, the same bytes may continue from other memory.
  virtual Result<bool> send(const FrameHeader& header, std::span<const std::byte> payload,
                            SendCursor& cursor) = 0;

  /// Whether the next message may be begun though a send returned false: what it began is under way whole,
  /// and only not over. The sends that are not over may then go on in any order.
  virtual bool may_begin() const { return false; }

  /// Header of the message at the head of the incoming stream, or nullptr while it is not wholly here.
  /// Checked: magic, version. Stays valid until pop(). With `awaited` a link may take payload together with
  /// the header, and write to `place`: all of its first bytes are then this payload's, and read() must be the
  /// next call if the message is the awaited one; whatever else arrived is kept elsewhere.
  virtual Result<const FrameHeader*> peek(const Awaited* awaited = nullptr) = 0;

  /// Copies the next payload bytes of the head message to `into` (possibly straight from the wire). Returns
  /// how many; 0 = none here yet, or the payload is consumed. Call only after peek() gave a header. A link
  /// may go on writing to the rest of `into` when that is at least the rest of the payload: call again with
  /// that rest, or give it up with Transport::withdraw.
  virtual Result<std::size_t> read(std::span<std::byte> into) = 0;

  /// The next payload bytes of the head message where they lie: a multiple of `unit` bytes (a power of two,
  /// at most 16; aligned to it), at most `most`, empty when fewer than `unit` are here. Valid until
  /// release(), which consumes `bytes` (a multiple of unit) of them.
  virtual Result<std::span<const std::byte>> borrow(std::size_t unit, std::size_t most) = 0;
  virtual void release(std::size_t bytes) = 0;

  /// Tells where the whole payload of a message that will come will be read to, before its header is here:
  /// the peer may then send it straight there without asking. Once for each such message, in their order,
  /// while nothing else with a large payload comes on this link; read() must then ask for just that memory. A
  /// link may write there from now on, until it was read or given up with Transport::withdraw.
  virtual void expect([[maybe_unused]] std::span<std::byte> place) {}

  /// Drops the head message, whose payload must be consumed.
  virtual void pop() = 0;

  /// What a sleeping waiter should watch: fd and events (POLLIN, and POLLOUT after a send that returned
  /// false). It is watched for what is new: nobody sleeps before calls have moved nothing. fd -1: this link
  /// lives in shared memory and rings the rank's doorbell instead.
  virtual pollfd poll_entry() const = 0;

  /// Payload and header bytes so far, for reports.
  virtual std::uint64_t bytes_sent() const = 0;

  /// Whether the peer has its end of this link, where it sees when this one ends. False: nobody knows yet.
  virtual bool reaches_peer() const { return true; }
};

/// All links of one communicator over one medium, and its domain where it has one.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;  ///< "tcp", "shm", "ucx" ...
  /// The transport that carries the links to `peer`: this one, or a part of it.
  virtual std::string_view link_name([[maybe_unused]] int peer) const { return name(); }

  /// The link to `peer`, or nullptr while it is being set up (asking starts that). Valid until close().
  virtual Result<Link*> link(int peer, Channel channel) = 0;

  /// Accepts what peers set up, without blocking. Called now and then by the engine before it sleeps, and by
  /// any-source receives.
  virtual Status service() = 0;

  /// Links that exist already (for revokes and any-source receives). Indexed by peer; nullptr where none.
  virtual Link* existing_link(int peer, Channel channel) = 0;

  /// Whether a link that this rank or `peer` has asked for is neither here nor known to fail: what `peer`
  /// says on it may be on its way. For transports that set links up by and by.
  virtual bool link_is_under_way([[maybe_unused]] int peer, [[maybe_unused]] Channel channel) {
    return false;
  }

  /// Descriptors beyond the links' own that a sleeping waiter should watch (a pending connection).
  virtual void append_poll_entries(std::vector<pollfd>& entries) = 0;

  /// Shared memory among all ranks of the communicator, or nullptr.
  virtual Domain* domain() = 0;

  /// The domain, of all ranks or of some, whose doorbell peers ring when they have written to a link in
  /// memory; nullptr where no link is in memory.
  virtual Domain* doorbell_domain() { return domain(); }

  /// Orderly end of this rank's side: what was sent is still delivered. Drops the links, and lets go of what
  /// belongs to the job; nothing moves any more.
  virtual void close() = 0;

  /// After a failure: whether the memory of unfinished sends to and reads from `peer` is not touched any
  /// more. False: call again in a moment. With `force` it is so at once, at the price of the links to that
  /// peer. For transports that move data straight from and to the callers' memory; others copy and have
  /// nothing to give back.
  virtual bool withdraw([[maybe_unused]] int peer, [[maybe_unused]] bool force) { return true; }

  /// Whether what has arrived of a long message can be taken while the rest is on its way. False: it is
  /// handed out late, and worth cutting where it is reduced.
  virtual bool streams() const { return true; }

  /// Whether sends that were accepted still need steps of this rank to be on their way.
  virtual bool unfinished() { return false; }
};

}  // namespace lockstep::internal
