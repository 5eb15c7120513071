// Matcher: point-to-point messages with tags and from any source, on links of their own.
//
// Protocol per message: the sender offers it (type, count, tag). Up to kEagerBytes the payload travels with
// the offer, and the send is complete once handed over. Larger ones wait for the receiver's accept, then
// travel straight into its buffer. Offers are matched in order of arrival against receives in order of
// posting. Unmatched offers are bounded (kMaxUnexpected).
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <span>
#include <vector>

#include "collectives/engine/operation.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// FrameHeader::index of an offer that has its payload with it, and of an accept that says no; else it is 0.
inline constexpr std::uint32_t kWithPayload = 1, kRefused = 1;

class Matcher {
 public:
  /// What the engine does for it.
  class Sink {
   public:
    virtual ~Sink() = default;
    /// Ends an operation of the engine.
    virtual void complete(Operation& operation, Status status) = 0;
    /// Why a peer has left whose link ended with `why`: what it says elsewhere, or `why` itself. Nothing
    /// while it may still be about to say something: to be asked again.
    virtual std::optional<Status> cause_of_loss(int peer, const Status& why) = 0;
  };

  /// `transport` is null in a group of one, whose messages are all to itself. `on_device`: messages lie where
  /// the processor reaches nothing, and none goes to its own rank.
  Matcher(Transport* transport, Sink& sink, int size, int self, bool on_device);

  /// Takes a send or receive. It ends through the sink, possibly at once.
  void post(Operation& operation);
  /// Moves what can be moved; never blocks. Losing a peer ends the operations that need it.
  bool step();
  /// Takes in small messages that nobody has asked for yet, as far as there is room, so that their senders go
  /// on while this rank waits for something else. True when something moved.
  bool take_in();
  /// Forgets every operation (the engine ends them) and what was to be sent, half-sent messages too: their
  /// links carry nothing else, and nothing more.
  void abandon();
  bool idle() const { return pending_ == 0 && !owes(); }
  /// Whether frames wait to be handed over: a refusal does so when its receive is over.
  bool owes() const { return queued_ > 0; }

 private:
  struct Outgoing {
    FrameHeader header;
    const std::byte* data = nullptr;  ///< The caller's memory.
    Operation* operation = nullptr;   ///< Ends when this frame is handed over.
    SendCursor cursor;
  };
  struct Incoming {  ///< The head message of a link while its payload arrives.
    bool active = false;
    Operation* operation = nullptr;           ///< Straight into its buffer; otherwise,
    std::vector<std::byte>* store = nullptr;  ///< into an unexpected message; or nowhere.
    std::uint64_t received = 0;
  };
  struct Peer {
    std::deque<Outgoing> outgoing;
    std::list<Operation*> awaiting_accept;
    std::list<Operation*> awaiting_message;  ///< Accepted receives.
    Incoming incoming;
    std::uint64_t next_id = 0;
    bool ended = false;  ///< Nothing more can be received from it.
  };
  struct Unexpected {
    int peer;
    FrameHeader offer;
    std::vector<std::byte> payload;
    bool complete = false;
  };

  void post_send(Operation& operation);
  void post_receive(Operation& operation);
  void send_to_self(Operation& operation);
  void match_stored();
  bool matches(const Operation& receive, int peer, const FrameHeader& offer) const;
  Operation* take_posted(int peer, const FrameHeader& offer);
  /// Null status when `offer` fits `receive`; otherwise the error that both sides get.
  Status check_fit(const Operation& receive, int peer, const FrameHeader& offer) const;
  void accept(Operation& receive, int peer, const FrameHeader& offer);
  void deliver(Operation& receive, int peer, const FrameHeader& offer, std::span<const std::byte> payload);
  void end(Operation& operation, Status status);
  void queue(int peer, Outgoing frame);

  bool step_peer(int peer);
  bool send_frames(int peer, Link& link);
  bool receive_frames(int peer, Link& link);
  bool receive_frame(int peer, Link& link, bool& moved);
  bool begin_frame(int peer, const FrameHeader& header);
  bool begin_offer(int peer, const FrameHeader& header);
  void take_offer(Operation& receive, int peer, const FrameHeader& offer);
  void on_accept(int peer, const FrameHeader& header);
  Result<bool> continue_payload(int peer, const FrameHeader& header, Link& link);
  void finish_frame(int peer, const FrameHeader& header);
  bool lose_peer(int peer, const Status& status);
  bool end_peer(int peer, const Status& status);
  bool all_ended() const;
  bool end_receives_from_any();
  Status full_store(int peer) const;
  bool wants_link(int peer) const;

  Transport* transport_;
  Sink& sink_;
  int self_;
  bool on_device_;
  std::vector<Peer> peers_;
  Status last_end_;                   ///< Why the last of the ended peers has ended.
  std::list<Operation*> posted_;      ///< Receives not matched yet, oldest first.
  std::list<Unexpected> unexpected_;  ///< Oldest first.
  std::size_t pending_ = 0;           ///< Operations not ended.
  std::size_t queued_ = 0;            ///< Frames not handed over.
};

}  // namespace lockstep::internal
