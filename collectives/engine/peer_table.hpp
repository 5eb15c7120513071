// PeerTable: this communicator's links of one channel for collectives, and who may use them when.
//
// Order rule: on each link, the frames of one call are sent only after all frames of every earlier call. The
// receiver therefore never finds a later call's frame in front of one that it waits for, and needs no buffer
// for early data; the socket or ring holds it back. That the oldest unfinished call can always progress is
// then the verifier's proof of its program with zero buffering. Urgent calls have a table and links of their
// own: what is said of the oldest call holds for the oldest of either kind, since they share nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "transports/transport.hpp"

namespace lockstep::internal {

class PeerTable {
 public:
  PeerTable(Transport& transport, Channel channel, int size, int self);

  Channel channel() const { return channel_; }

  /// The link to `peer`, or nullptr while it is being set up.
  Result<Link*> link(int peer);

  /// A call takes its place in the order of every peer that it will send to. In order of sequence numbers.
  void enter(std::uint64_t sequence, const std::vector<int>& peers);
  /// Whether `sequence` may send to `peer` now.
  bool may_send(int peer, std::uint64_t sequence) const;
  /// The call's last message to `peer` is handed over.
  void leave(int peer, std::uint64_t sequence);
  /// Remembers whether a message to `peer` is under way: nothing may be put between its bytes.
  void set_mid_message(int peer, bool mid) { peers_[static_cast<std::size_t>(peer)].mid_message = mid; }

  /// Queues a frame of the engine's own (probe, revoke); it goes out between messages.
  void post(int peer, const FrameHeader& header, std::string payload = {});
  /// Sends what is queued. True when something moved. Errors of single peers are ignored: they are found
  /// where data are awaited.
  bool flush();
  bool has_posted() const;
  bool has_posted(int peer) const { return !peers_[static_cast<std::size_t>(peer)].posted.empty(); }
  /// Whether something is queued for a peer to which a link is being made.
  bool awaits_link() const;
  void drop_posted();
  /// Whether something queued for `peer` was given up, and it sees no end of a link here either.
  bool has_missed(int peer) const { return peers_[static_cast<std::size_t>(peer)].missed; }
  /// Whether that was for want of time.
  bool was_late(int peer) const { return peers_[static_cast<std::size_t>(peer)].late; }
  /// Whether `peer` was sent a revoke, or ended its side before.
  bool needs_no_word(int peer) const { return peers_[static_cast<std::size_t>(peer)].needs_no_word; }

  /// After a revoke: what was begun is finished with a copy, so that the caller's memory is free and the
  /// stream stays whole. Nothing more goes to the peer on this link where the message is longer than
  /// kMostAdopted, or there is no memory.
  void adopt_rest(int peer, const FrameHeader& header, std::span<const std::byte> payload,
                  const SendCursor& cursor);

  int size() const { return static_cast<int>(peers_.size()); }

 private:
  struct Posted {
    FrameHeader header;
    std::string payload;
    SendCursor cursor;
  };
  struct Peer {
    Link* link = nullptr;
    std::vector<std::uint64_t> order;  // Ring buffer of sequences, kMaxInFlight entries once used.
    std::uint32_t head = 0, count = 0;
    bool mid_message = false;
    std::deque<Posted> posted;
    bool missed = false, late = false, needs_no_word = false;
  };
  bool flush_peer(int peer);
  /// Whether the peer misses it.
  static bool drop_posted(Peer& peer);

  Transport& transport_;
  const Channel channel_;
  int self_;
  std::vector<Peer> peers_;
};

}  // namespace lockstep::internal
