// The sending side, and what links tell each other. fabric_link_receive.cpp has the receiving side.
#include "transports/fabric/fabric_link.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

namespace lockstep::internal {
namespace {

/// As return_credits tells it: the part of the key that is used.
std::optional<Landing> landing_of(std::span<const std::byte> told) {
  Landing landing;
  constexpr std::size_t kHead = offsetof(Landing, key);
  if (told.size() < kHead || told.size() > sizeof landing) return std::nullopt;
  std::memcpy(&landing, told.data(), told.size());
  if (landing.key_bytes != told.size() - kHead) return std::nullopt;
  return landing;
}

}  // namespace

Status FabricLink::broken() const { return protocol_failure_.ok() ? wire_->failure() : protocol_failure_; }

Status FabricLink::no_message() const {
  return Status(ErrorCode::internal,
                "rank " + std::to_string(peer_) +
                    " sent bytes that are no message of a link: check that all ranks run one version",
                peer_);
}

// Sends one small message. Credits for what was read ride along.
Result<bool> FabricLink::tell(Kind kind, std::span<const std::byte> body) {
  Note note;
  note.kind = kind;
  note.credits = static_cast<std::uint8_t>(untold_reads_);
  note.bytes = static_cast<std::uint32_t>(body.size());
  auto sent = wire_->send(std::as_bytes(std::span(&note, 1)), body);
  if (sent.ok() && *sent) untold_reads_ = 0;
  return sent;
}

void FabricLink::return_credits() {
  while (!untold_.empty()) {
    const Landing& landing = untold_.front();
    const auto whole = std::as_bytes(std::span(&landing, 1));
    const auto told = tell(Kind::landing, whole.first(offsetof(Landing, key) + landing.key_bytes));
    if (!told.ok() || !told.value()) return;
    untold_.pop_front();
  }
  if (untold_reads_ >= kPieceCredits / 2) static_cast<void>(tell(Kind::credits, {}));
}

void FabricLink::greet() { static_cast<void>(tell(Kind::credits, {})); }

void FabricLink::say_farewell() {
  const auto told = tell(Kind::farewell, {});
  owes_farewell_ = told.ok() && !told.value();
}

bool FabricLink::unfinished() {
  if (owes_farewell_) say_farewell();
  const bool transfers = wire_->filled() < filled_ + in_transfer_.size();
  return owes_farewell_ || (transfers && broken().ok()) || wire_->unfinished();
}

bool FabricLink::pump() {
  bool moved = driver_.progress();
  while (const auto arrival = wire_->next()) {
    take(*arrival);
    moved = true;
  }
  return_credits();
  return moved;
}

void FabricLink::take(const Arrival& arrival) {
  heard_ = true;
  Note note;
  if (arrival.bytes.size() >= sizeof note) std::memcpy(&note, arrival.bytes.data(), sizeof note);
  const bool whole = arrival.bytes.size() == sizeof note + note.bytes;
  credits_ += note.credits;
  const auto landing =
      whole && note.kind == Kind::landing ? landing_of(arrival.bytes.subspan(sizeof note)) : std::nullopt;
  const bool known = note.kind == Kind::piece || note.kind == Kind::credits || note.kind == Kind::farewell ||
                     (landing && granted_.size() < kLandings);
  if (!whole || !known || credits_ > kPieceCredits) {
    protocol_failure_ = no_message();
  } else if (note.kind == Kind::piece) {
    pieces_.push_back(arrival);
    return;  // Its slot stays taken until it is read.
  } else if (landing) {
    granted_.push_back(*landing);
  } else if (note.kind == Kind::farewell) {
    peer_left_ = true;
    driver_.note_farewell(peer_);
  }
  wire_->release(arrival);
}

// ---- sending ----

Result<bool> FabricLink::send(const FrameHeader& header, std::span<const std::byte> payload,
                              SendCursor& cursor) {
  if (Status status = broken(); !status.ok()) return status;
  const bool large = payload.size() > most_in_pieces(header.kind);
  auto sent = large ? send_large(header, payload, cursor) : send_pieces(header, payload, cursor);
  if (!sent.ok() || *sent || !pump()) return sent;
  return large ? send_large(header, payload, cursor) : send_pieces(header, payload, cursor);
}

// One piece, with the frame's header in front where there is one.
Result<bool> FabricLink::send_piece(const FrameHeader* header, std::span<const std::byte> payload) {
  if (credits_ == 0) return false;
  struct {
    Note note;
    FrameHeader header;
  } head;
  static_assert(sizeof head == sizeof(Note) + sizeof(FrameHeader));
  head.note.credits = static_cast<std::uint8_t>(untold_reads_);
  head.note.bytes = static_cast<std::uint32_t>(payload.size() + (header != nullptr ? sizeof *header : 0));
  if (header != nullptr) head.header = *header;
  const auto front = std::as_bytes(std::span(&head, 1));
  auto sent = wire_->send(header != nullptr ? front : front.first(sizeof(Note)), payload);
  if (!sent.ok() || !*sent) return sent;
  untold_reads_ = 0;
  --credits_;
  bytes_sent_ += head.note.bytes;
  return true;
}

Result<bool> FabricLink::send_pieces(const FrameHeader& header, std::span<const std::byte> payload,
                                     SendCursor& cursor) {
  constexpr std::size_t kFirst = kSlotBytes - sizeof(Note) - sizeof header;
  constexpr std::size_t kNext = kSlotBytes - sizeof(Note);
  static_assert(kFirst % 16 == 0 && kNext % 16 == 0, "no element may lie in two pieces");
  while (cursor.header_bytes == 0 || cursor.payload_bytes < payload.size()) {
    const bool first = cursor.header_bytes == 0;
    const auto rest = payload.subspan(cursor.payload_bytes);
    const auto part = rest.first(std::min(rest.size(), first ? kFirst : kNext));
    auto sent = send_piece(first ? &header : nullptr, part);
    if (!sent.ok() || !*sent) return sent;
    cursor.header_bytes = sizeof header;
    cursor.payload_bytes += part.size();
    whole_ = cursor.payload_bytes == payload.size();
  }
  return true;
}

// Fills what the peer opened, as far as this payload goes: landings behind are for messages to come.
Status FabricLink::begin_transfers(std::span<const std::byte> payload) {
  while (!granted_.empty() && begun_bytes_ < payload.size()) {
    const Landing& landing = granted_.front();
    if (landing.bytes > payload.size() - begun_bytes_) {
      protocol_failure_ = Status(
          ErrorCode::internal, "rank " + std::to_string(peer_) + " asked for more than a message has", peer_);
      return protocol_failure_;
    }
    auto begun = wire_->fill(landing, payload.subspan(begun_bytes_, landing.bytes));
    if (!begun.ok()) return begun.status();
    if (!*begun) break;
    begun_bytes_ += landing.bytes;
    in_transfer_.push_back(landing.bytes);
    granted_.pop_front();
  }
  whole_ = begun_bytes_ == payload.size();
  return {};
}

Result<bool> FabricLink::send_large(const FrameHeader& header, std::span<const std::byte> payload,
                                    SendCursor& cursor) {
  if (cursor.header_bytes == 0) {
    auto sent = send_piece(&header, {});
    if (!sent.ok() || !*sent) return sent;
    cursor.header_bytes = sizeof header;
    cursor.number = ++begun_;
    begun_bytes_ = 0;
    whole_ = false;
  }
  if (cursor.number == begun_) LOCKSTEP_RETURN_IF_ERROR(begin_transfers(payload));
  // Transfers are over in their order: those of the oldest message come first.
  const std::uint64_t now = wire_->filled();
  while (cursor.number == sent_ + 1 && filled_ < now && cursor.payload_bytes < payload.size()) {
    cursor.payload_bytes += in_transfer_.front();
    bytes_sent_ += in_transfer_.front();
    in_transfer_.pop_front();
    ++filled_;
  }
  if (Status status = broken(); !status.ok()) return status;
  if (cursor.payload_bytes < payload.size()) return false;
  ++sent_;
  return true;
}

}  // namespace lockstep::internal
