// FabricLink: messages over a Wire, with flow control and without copies of large payloads.
//
// A message up to kPiecewiseBytes travels as pieces, which the receiver's slots take; at most kPieceCredits
// of them are under way or unread. The header of a larger one travels alone; when the receiver knows where
// its payload goes, it opens landings there and tells the sender, who fills them from its own memory. So data
// are never on their way to a place that is not ready, and a receiver that does not read holds the sender
// back, as a socket would. A receiver that knows the place before the header is here (expect) opens its
// landings then, and the sender need not wait for them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "transports/fabric/fabric.hpp"
#include "transports/fabric/fabric_driver.hpp"
#include "transports/fabric/limits.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

class FabricLink final : public Link {
 public:
  FabricLink(FabricDriver& driver, std::unique_ptr<Wire> wire, int peer, PayloadMemory payloads)
      : driver_(driver), wire_(std::move(wire)), peer_(peer), on_device_(payloads != PayloadMemory::host) {}

  Result<bool> send(const FrameHeader& header, std::span<const std::byte> payload,
                    SendCursor& cursor) override;
  bool may_begin() const override { return whole_ && begun_ - sent_ < kLandings; }
  Result<const FrameHeader*> peek(const Awaited* awaited = nullptr) override;
  Result<std::size_t> read(std::span<std::byte> into) override;
  Result<std::span<const std::byte>> borrow(std::size_t unit, std::size_t most) override;
  void release(std::size_t bytes) override;
  void expect(std::span<std::byte> place) override;
  void pop() override;
  /// The transport's descriptor wakes for all links.
  pollfd poll_entry() const override { return {-1, 0, 0}; }
  std::uint64_t bytes_sent() const override { return bytes_sent_; }
  bool reaches_peer() const override { return heard_; }

  /// Takes what arrived for the link itself. Whether anything did.
  bool pump();
  /// True when the callers' memory is not touched any more by unfinished sends and reads. With `force` it is
  /// so at once, at the price of the link.
  bool withdraw(bool force);
  /// Tells the peer that there is a link.
  void greet();
  /// Tells the peer that nothing follows; where there is no room for it now, with unfinished().
  void say_farewell();
  /// Whether something that was begun is not on its way yet, or not over.
  bool unfinished();

 private:
  enum class Kind : std::uint8_t { piece = 1, landing = 2, credits = 3, farewell = 4 };
  struct Note {  // Begins every small message. 16 bytes, so that payload behind it is aligned.
    Kind kind = Kind::piece;
    std::uint8_t credits = 0;  // Pieces that the sender of this has read since its last note.
    std::uint16_t zero = 0;
    std::uint32_t bytes = 0;  // That follow.
    std::uint64_t also_zero = 0;
  };
  static_assert(sizeof(Note) == 16);
  enum class Way : std::uint8_t { undecided, pieces, direct, bounce };
  struct Expected {  // A payload's place, and how much of it landings were opened for.
    std::span<std::byte> place;
    std::size_t opened = 0, landings = 0;
  };

  Result<bool> tell(Kind kind, std::span<const std::byte> body);
  Result<bool> send_piece(const FrameHeader* header, std::span<const std::byte> payload);
  Result<bool> send_pieces(const FrameHeader& header, std::span<const std::byte> payload, SendCursor& cursor);
  Result<bool> send_large(const FrameHeader& header, std::span<const std::byte> payload, SendCursor& cursor);
  Status begin_transfers(std::span<const std::byte> payload);
  void take(const Arrival& arrival);
  void return_credits();
  Status broken() const;
  Status no_message() const;
  /// Larger payloads of such frames wait for a landing. Nothing of a device's memory can be copied to a slot.
  std::size_t most_in_pieces(FrameKind kind) const {
    const bool payload = kind == FrameKind::data || kind == FrameKind::message;
    return on_device_ && payload ? 0 : kPiecewiseBytes;
  }

  Status begin_payload();
  Status open_ahead();
  void close_landings();
  bool lets_go();
  Status choose_way(std::span<const std::byte> into);
  Status open(std::span<std::byte> memory, bool may_take_back);
  Result<std::size_t> read_pieces(std::span<std::byte> into);
  Result<std::size_t> read_direct(std::span<std::byte> into);
  Result<std::size_t> read_bounced(std::span<std::byte> into);
  std::span<const std::byte> piece() const;
  void consume_piece(std::size_t bytes);
  Status refill_bounce();
  std::span<const std::byte> bounced();
  void consume_bounced(std::size_t bytes);

  FabricDriver& driver_;
  const std::unique_ptr<Wire> wire_;
  const int peer_;
  const bool on_device_;     // Payloads are.
  Status protocol_failure_;  // The peer said what no lockstep says.
  bool peer_left_ = false;
  bool heard_ = false;  // Anything of the peer.
  bool owes_farewell_ = false;
  std::uint64_t bytes_sent_ = 0;

  // Sending.
  std::size_t credits_ = kPieceCredits;
  std::deque<Landing> granted_;            // By the peer, not begun.
  std::deque<std::uint64_t> in_transfer_;  // Sizes of the transfers under way, in order.
  std::uint64_t filled_ = 0;               // Transfers that are over.
  std::uint64_t begun_ = 0, sent_ = 0;     // Large messages whose header went, and that are over, in order.
  std::uint64_t begun_bytes_ = 0;          // Of the youngest of them.
  bool whole_ = true;                      // Nothing is left to begin of any message.

  // Receiving.
  std::deque<Arrival> pieces_;
  std::size_t piece_at_ = 0;      // Consumed bytes of the first piece, its notes included.
  std::size_t untold_reads_ = 0;  // Pieces read, of which the peer was not told yet.
  Status given_up_;               // Nothing is received any more: some of it has no place.
  FrameHeader header_;
  bool have_header_ = false;
  Way way_ = Way::undecided;
  std::uint64_t payload_left_ = 0;         // Of the head message, not read.
  std::uint64_t unopened_ = 0;             // Of it, bytes for which no landing was opened.
  std::uint64_t landed_ = 0;               // Landings that are filled and accounted.
  std::deque<std::span<std::byte>> open_;  // Opened, in order.
  std::deque<std::span<std::byte>> full_;  // Bounce landings filled and unread, in order.
  std::deque<Landing> untold_;             // Opened, the peer was not told yet.
  std::deque<Expected> expected_;          // Whose headers are not here.
  std::span<std::byte> bounce_;            // kLandings times kBounceLandingBytes, once needed.
  std::size_t next_bounce_ = 0;
};

}  // namespace lockstep::internal
