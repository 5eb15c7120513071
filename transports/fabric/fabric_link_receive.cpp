// The receiving side of a link over a fabric.
#include <algorithm>
#include <cstring>
#include <new>

#include "lib/reduce/copy.hpp"
#include "transports/check_frame.hpp"
#include "transports/fabric/fabric_link.hpp"

namespace lockstep::internal {

Result<const FrameHeader*> FabricLink::peek(const Awaited*) {
  if (!given_up_.ok()) return given_up_;
  if (have_header_) return &header_;
  if (pieces_.empty()) pump();
  if (pieces_.empty()) {
    if (Status status = broken(); !status.ok()) return status;
    if (!peer_left_ && !driver_.has_left(peer_)) return nullptr;
    return Status(ErrorCode::peer_lost, "rank " + std::to_string(peer_) + " closed the communicator", peer_);
  }
  const auto front = piece();
  if (front.size() >= sizeof header_) std::memcpy(&header_, front.data(), sizeof header_);
  if (front.size() < sizeof header_ || !is_frame(header_)) {
    protocol_failure_ = no_frame("rank " + std::to_string(peer_), peer_);
    return protocol_failure_;
  }
  LOCKSTEP_RETURN_IF_ERROR(begin_payload());
  have_header_ = true;
  consume_piece(sizeof header_);
  return &header_;
}

Status FabricLink::begin_payload() {
  payload_left_ = unopened_ = header_.bytes;
  way_ = header_.bytes > most_in_pieces(header_.kind) ? Way::undecided : Way::pieces;
  if (way_ == Way::pieces || expected_.empty()) return {};
  const Expected expected = expected_.front();
  if (expected.place.size() != header_.bytes) {
    protocol_failure_ = Status(ErrorCode::internal,
                               "rank " + std::to_string(peer_) + " sent " + std::to_string(header_.bytes) +
                                   " bytes where " + std::to_string(expected.place.size()) + " were expected",
                               peer_);
    return protocol_failure_;
  }
  expected_.pop_front();
  way_ = Way::direct;
  unopened_ -= expected.opened;
  return {};
}

// Smaller payloads come in pieces, and need no landing. Only messages are told of ahead.
void FabricLink::expect(std::span<std::byte> place) {
  if (place.size() <= most_in_pieces(FrameKind::message) || !driver_.fabric().takes_back() || !broken().ok())
    return;
  expected_.push_back({place});
  static_cast<void>(open_ahead());  // Its error is failure()'s.
}

// Landings are filled in the order in which they were opened, so the message that arrives comes first.
Status FabricLink::open_ahead() {
  if (payload_left_ > 0 && way_ != Way::pieces && unopened_ > 0) return {};
  for (Expected& expected : expected_) {
    while (expected.opened < expected.place.size()) {
      if (open_.size() == kLandings) return {};
      const auto rest = expected.place.subspan(expected.opened);
      const auto part = rest.first(std::min(rest.size(), kDirectLandingBytes));
      LOCKSTEP_RETURN_IF_ERROR(open(part, true));
      expected.opened += part.size();
      ++expected.landings;
    }
  }
  return {};
}

void FabricLink::pop() { have_header_ = false; }

// What is unread of the first piece.
std::span<const std::byte> FabricLink::piece() const {
  return pieces_.front().bytes.subspan(std::max(piece_at_, sizeof(Note)));
}

void FabricLink::consume_piece(std::size_t bytes) {
  piece_at_ = std::max(piece_at_, sizeof(Note)) + bytes;
  if (piece_at_ < pieces_.front().bytes.size()) return;
  wire_->release(pieces_.front());
  pieces_.pop_front();
  piece_at_ = 0;
  ++untold_reads_;
  return_credits();
}

// A large payload goes straight to its place when all of it is asked for at once, and the fabric can do that.
Status FabricLink::choose_way(std::span<const std::byte> into) {
  if (way_ != Way::undecided) return {};
  const bool whole = into.size() >= payload_left_ && payload_left_ == header_.bytes;
  way_ = whole && driver_.fabric().direct(into.data(), payload_left_) ? Way::direct : Way::bounce;
  if (way_ == Way::direct || !bounce_.empty()) return {};
  auto memory = driver_.fabric().bounce_memory(kLandings * kBounceLandingBytes);
  if (!memory.ok()) return memory.status();
  bounce_ = *memory;
  return {};
}

Status FabricLink::open(std::span<std::byte> memory, bool may_take_back) {
  Landing landing;
  LOCKSTEP_RETURN_IF_ERROR(wire_->open_landing(memory, may_take_back, landing));
  open_.push_back(memory);
  untold_.push_back(landing);
  return_credits();
  return {};
}

Result<std::size_t> FabricLink::read(std::span<std::byte> into) {
  if (!protocol_failure_.ok()) return protocol_failure_;
  if (!given_up_.ok()) return given_up_;
  into = into.first(std::min<std::uint64_t>(into.size(), payload_left_));
  if (into.empty()) return std::size_t{0};
  LOCKSTEP_RETURN_IF_ERROR(choose_way(into));
  auto got = way_ == Way::pieces   ? read_pieces(into)
             : way_ == Way::direct ? read_direct(into)
                                   : read_bounced(into);
  if (!got.ok()) return got;
  payload_left_ -= *got;
  if (Status status = broken(); *got == 0 && !status.ok()) return status;
  return got;
}

Result<std::size_t> FabricLink::read_pieces(std::span<std::byte> into) {
  std::size_t total = 0;
  while (total < into.size()) {
    if (pieces_.empty() && !pump()) break;
    if (pieces_.empty()) continue;
    const auto front = piece();
    const std::size_t bytes = std::min(front.size(), into.size() - total);
    copy_bytes(into.data() + total, front.data(), bytes);
    total += bytes;
    consume_piece(bytes);
  }
  return total;
}

// `into` begins where the oldest open landing does.
Result<std::size_t> FabricLink::read_direct(std::span<std::byte> into) {
  if (!open_.empty() && open_.front().data() != into.data()) {
    protocol_failure_ = Status(
        ErrorCode::internal,
        "rank " + std::to_string(peer_) + " sent messages in another order than they were asked for", peer_);
    return protocol_failure_;
  }
  while (unopened_ > 0 && open_.size() < kLandings) {
    const std::size_t begin = payload_left_ - unopened_;
    const auto part = into.subspan(begin, std::min<std::uint64_t>(unopened_, kDirectLandingBytes));
    LOCKSTEP_RETURN_IF_ERROR(open(part, false));
    unopened_ -= part.size();
  }
  pump();
  std::size_t total = 0;
  for (const std::uint64_t now = wire_->landed(); landed_ < now && total < into.size(); ++landed_) {
    total += open_.front().size();
    open_.pop_front();
  }
  if (total > 0) LOCKSTEP_RETURN_IF_ERROR(open_ahead());
  return total;
}

// Keeps as many landings open as there is bounce memory for.
Status FabricLink::refill_bounce() {
  while (unopened_ > 0 && open_.size() + full_.size() < kLandings) {
    const auto part = bounce_.subspan(next_bounce_ * kBounceLandingBytes,
                                      std::min<std::uint64_t>(unopened_, kBounceLandingBytes));
    LOCKSTEP_RETURN_IF_ERROR(open(part, false));
    unopened_ -= part.size();
    next_bounce_ = (next_bounce_ + 1) % kLandings;
  }
  return {};
}

// The unread bytes of the oldest landing that is filled; may be empty.
std::span<const std::byte> FabricLink::bounced() {
  if (full_.empty()) pump();
  for (const std::uint64_t now = wire_->landed(); landed_ < now; ++landed_) {
    full_.push_back(open_.front());
    open_.pop_front();
  }
  return full_.empty() ? std::span<const std::byte>() : full_.front();
}

void FabricLink::consume_bounced(std::size_t bytes) {
  full_.front() = full_.front().subspan(bytes);
  if (full_.front().empty()) full_.pop_front();
}

Result<std::size_t> FabricLink::read_bounced(std::span<std::byte> into) {
  std::size_t total = 0;
  while (total < into.size()) {
    LOCKSTEP_RETURN_IF_ERROR(refill_bounce());
    const auto here = bounced();
    if (here.empty()) break;
    const std::size_t bytes = std::min(here.size(), into.size() - total);
    copy_bytes(into.data() + total, here.data(), bytes);
    consume_bounced(bytes);
    total += bytes;
  }
  return total;
}

// Pieces and landings begin at multiples of 16 in the payload and in memory, and whole units are consumed.
Result<std::span<const std::byte>> FabricLink::borrow(std::size_t unit, std::size_t most) {
  using Lent = std::span<const std::byte>;
  most = std::min<std::uint64_t>(most, payload_left_) / unit * unit;
  if (most == 0) return Lent();
  LOCKSTEP_RETURN_IF_ERROR(choose_way({}));
  Lent here;
  if (way_ == Way::pieces) {
    if (pieces_.empty()) pump();
    if (!pieces_.empty()) {
      here = piece();
      if (here.size() < unit) protocol_failure_ = no_message();  // Nothing can be added to what is there.
    }
  } else {
    LOCKSTEP_RETURN_IF_ERROR(refill_bounce());
    here = bounced();
  }
  if (Status status = broken(); here.size() < unit && !status.ok()) return status;
  return here.first(std::min(most, here.size() / unit * unit));
}

void FabricLink::release(std::size_t bytes) {
  if (bytes == 0) return;
  payload_left_ -= bytes;
  if (way_ == Way::pieces) return consume_piece(bytes);
  consume_bounced(bytes);
}

// ---- giving up ----

// What nobody fills yet is closed at once, where the fabric can; what is being filled is waited for as any
// other transfer. What was to come there has no place any more, so nothing further is received. Bounce
// landings are the link's own, and before those of expected messages.
void FabricLink::close_landings() {
  std::size_t ahead = 0;
  for (const Expected& expected : expected_) ahead += expected.landings;
  expected_.clear();
  const std::size_t closable = way_ == Way::direct ? open_.size() : ahead;
  if (closable == 0) return;
  const std::size_t closed = wire_->take_back(closable);
  open_.resize(open_.size() - closed);
  untold_.resize(untold_.size() - std::min(untold_.size(), closed));
  if (closed == 0 && ahead == 0) return;
  const auto words = [&] { return "a message of rank " + std::to_string(peer_) + " was given up"; };
  given_up_ = Status(ErrorCode::aborted, words_of(words), peer_);
}

/// Whether nothing here is awaited or sent from the caller's memory any more.
bool FabricLink::lets_go() {
  if (given_up_.ok()) close_landings();
  const bool receiving = (way_ == Way::direct || !given_up_.ok()) && !open_.empty();
  if (!receiving && in_transfer_.empty()) return true;
  pump();
  for (const std::uint64_t now = wire_->landed(); receiving && landed_ < now; ++landed_) {
    payload_left_ -= open_.front().size();
    open_.pop_front();
  }
  if (receiving && open_.empty()) way_ = Way::undecided;
  // Sends are accounted by whoever goes on sending; here it counts that they are over.
  const bool over = wire_->filled() == filled_ + in_transfer_.size();
  return over && (!receiving || open_.empty());
}

bool FabricLink::withdraw(bool force) {
  bool free = false;
  try {
    free = lets_go();
  } catch (const std::bad_alloc&) {  // For what has come: the cut needs none.
  }
  if (free || !force) return free;
  const auto words = [&] {
    return "rank " + std::to_string(peer_) + " did not take part any more when a failed operation ended";
  };
  wire_->cut(Status(ErrorCode::peer_lost, words_of(words), peer_));
  open_.clear();
  in_transfer_.clear();
  return true;
}

}  // namespace lockstep::internal
