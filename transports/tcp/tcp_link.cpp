#include "transports/tcp/tcp_link.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lib/reduce/copy.hpp"
#include "transports/check_frame.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

// Up to here one copy is cheaper than making the kernel look at two pieces.
constexpr std::size_t kCopiedToSend = 8 << 10;
constexpr std::size_t kCopiedToPlace = 1 << 10;

// Whether an awaited payload is worth a call that tells it from its header. What will be lent need not move.
bool goes_apart(const Awaited& awaited) {
  return awaited.header.bytes > (awaited.place.empty() ? kPeekBytes - sizeof awaited.header : kCopiedToPlace);
}

/// Of a connection that was reset the system knows no address any more.
std::string name_of(int peer, const HostPort& where) {
  return "rank " + std::to_string(peer) + (where.host.empty() ? "" : " at " + where.text());
}

iovec piece(std::span<const std::byte> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // sendmsg only reads.
}

}  // namespace

TcpLink::TcpLink(Fd socket, int peer, std::shared_ptr<Bounce> bounce, SilenceWatch* watch)
    : socket_(std::move(socket)),
      peer_(peer),
      who_(name_of(peer, remote_address(socket_))),
      bounce_(std::move(bounce)),
      watch_(watch),
      buffer_(kPeekBytes) {
  if (watch_ != nullptr) watch_->add(socket_.get());
}

TcpLink::~TcpLink() {
  static_cast<void>(take_socket());
  bounce_->leave(*this);
}

Fd TcpLink::take_socket() {
  if (watch_ != nullptr && socket_) watch_->remove(socket_.get());
  return std::move(socket_);
}

Status TcpLink::lost(std::string evidence) const {
  if (watch_ != nullptr && watch_->fell_silent(socket_.get())) evidence = silence_text();
  return Status(ErrorCode::peer_lost, who_ + " is gone: " + evidence, peer_);
}

// ---- sending ----

Result<bool> TcpLink::send(const FrameHeader& header, std::span<const std::byte> payload,
                           SendCursor& cursor) {
  if (!send_failure_.ok()) return send_failure_;
  const Transfer sent = send_rest(header, payload, cursor);
  if (sent.error != 0) {
    send_failure_ = lost(std::string("sending failed: ") + std::strerror(sent.error));
    return send_failure_;
  }
  bytes_sent_ += sent.bytes;
  const std::size_t of_header = std::min(sent.bytes, sizeof header - cursor.header_bytes);
  cursor.header_bytes += of_header;
  cursor.payload_bytes += sent.bytes - of_header;
  const bool done = cursor.header_bytes == sizeof header && cursor.payload_bytes == payload.size();
  send_unfinished_ = !done;
  return done;
}

Transfer TcpLink::send_rest(const FrameHeader& header, std::span<const std::byte> payload,
                            const SendCursor& cursor) {
  const auto head = std::as_bytes(std::span(&header, 1)).subspan(cursor.header_bytes);
  const auto body =
      payload.subspan(cursor.payload_bytes, std::min(payload.size() - cursor.payload_bytes, kSendSlice));
  if (head.empty()) return send_some(socket_.get(), body);
  if (body.size() > kCopiedToSend) {
    return send_some(socket_.get(), std::array{piece(head), piece(body)});
  }
  std::array<std::byte, sizeof header + kCopiedToSend> both;
  std::memcpy(both.data(), head.data(), head.size());
  if (!body.empty()) std::memcpy(both.data() + head.size(), body.data(), body.size());
  return send_some(socket_.get(), std::span<const std::byte>(both).first(head.size() + body.size()));
}

// ---- receiving ----

std::size_t TcpLink::receive(std::span<const iovec> pieces) {
  if (!receive_failure_.ok()) return 0;
  const Transfer got = receive_some(socket_.get(), pieces);
  if (got.ended) receive_failure_ = lost("it closed the connection");
  if (got.error != 0) receive_failure_ = lost(std::strerror(got.error));
  return got.bytes;
}

Result<const FrameHeader*> TcpLink::peek(const Awaited* awaited) {
  if (have_header_) return &header_;
  if (buffer_.size() < sizeof header_) {
    if (awaited != nullptr && goes_apart(*awaited)) {
      receive_awaited(*awaited);
      if (have_header_) return &header_;
    } else {
      buffer_.commit(receive(std::array{piece(buffer_.writable(kPeekBytes - buffer_.size()))}));
    }
  }
  if (buffer_.size() < sizeof header_) {
    if (!receive_failure_.ok()) return receive_failure_;
    return nullptr;
  }
  std::memcpy(&header_, buffer_.readable().data(), sizeof header_);
  if (!is_frame(header_)) {
    receive_failure_ = no_frame(who_, peer_);
    return receive_failure_;
  }
  buffer_.consume(sizeof header_);
  payload_left_ = header_.bytes;
  have_header_ = true;
  return &header_;
}

void TcpLink::receive_awaited(const Awaited& awaited) {
  const bool lends = awaited.place.empty();
  const std::span<std::byte> place = lends ? bounce_->take(*this) : awaited.place;
  const std::size_t wanted = std::min<std::uint64_t>({awaited.header.bytes, place.size(), kReceiveSlice});
  // The next header, if it is here already, then costs no call of its own.
  const std::size_t behind = wanted == awaited.header.bytes ? kBehindBytes : 0;
  const std::size_t landed = lends                 ? receive_in_one_piece(place.first(wanted), behind)
                             : awaited.room_before ? receive_in_one_piece(place.first(wanted), 0)
                                                   : receive_in_pieces(place.first(wanted), behind);
  if (buffer_.size() < sizeof header_) return;
  std::memcpy(&header_, buffer_.readable().data(), sizeof header_);
  buffer_.consume(sizeof header_);
  if (std::memcmp(&header_, &awaited.header, sizeof header_) != 0) {
    buffer_.prepend(place.first(landed));
    buffer_.prepend(std::as_bytes(std::span(&header_, 1)));
    return;
  }
  have_header_ = true;
  payload_left_ = header_.bytes;
  if (lends) {
    lent_ = place.first(landed);
  } else {
    placed_ = landed;
  }
}

// Of what arrives, the rest of a header and what is behind the payload go to the buffer, the payload to its
// place. Both return how much of that came.

// The cheaper call, where the memory before the place, and `behind` bytes after it, may be written too.
std::size_t TcpLink::receive_in_one_piece(std::span<std::byte> place, std::size_t behind) {
  const std::size_t missing = sizeof header_ - buffer_.size();
  std::byte* const begin = place.data() - missing;
  const std::span<std::byte> all(begin, missing + place.size() + behind);
  const std::span<const std::byte> came = all.first(receive(std::array{piece(all)}));
  buffer_.append(came.first(std::min(came.size(), missing)));
  if (came.size() <= missing) return 0;
  const std::size_t landed = std::min(came.size() - missing, place.size());
  buffer_.append(came.subspan(missing + landed));
  return landed;
}

std::size_t TcpLink::receive_in_pieces(std::span<std::byte> place, std::size_t behind) {
  const std::size_t missing = sizeof header_ - buffer_.size();
  const std::span<std::byte> rest = buffer_.writable(missing + behind);
  const std::size_t came =
      receive(std::array{piece(rest.first(missing)), piece(place), piece(rest.subspan(missing))});
  const std::size_t landed = std::min(came - std::min(came, missing), place.size());
  buffer_.commit(came - landed);
  return landed;
}

Result<std::size_t> TcpLink::read(std::span<std::byte> into) {
  into = into.first(std::min<std::uint64_t>(into.size(), payload_left_));
  std::size_t got = std::exchange(placed_, 0);
  const auto take = [&](std::span<const std::byte> from) {
    const std::size_t bytes = std::min(into.size() - got, from.size());
    copy_bytes(into.data() + got, from.data(), bytes);
    got += bytes;
    return bytes;
  };
  lent_ = lent_.subspan(take(lent_));
  buffer_.consume(take(buffer_.readable()));
  payload_left_ -= got;
  if (got < into.size()) got += read_wire(into.subspan(got));
  if (got == 0 && !into.empty() && !receive_failure_.ok()) return receive_failure_;
  return got;
}

// Nothing is left here. What follows the payload goes to the buffer.
std::size_t TcpLink::read_wire(std::span<std::byte> into) {
  into = into.first(std::min(into.size(), kReceiveSlice));
  const std::size_t behind = into.size() == payload_left_ ? kBehindBytes : 0;
  const std::size_t got = receive(std::array{piece(into), piece(buffer_.writable(behind).first(behind))});
  const std::size_t direct = std::min(got, into.size());
  buffer_.commit(got - direct);
  payload_left_ -= direct;
  return direct;
}

Result<std::span<const std::byte>> TcpLink::borrow(std::size_t unit, std::size_t most) {
  most = std::min<std::uint64_t>(most, payload_left_) / unit * unit;
  if (most == 0) return std::span<const std::byte>();
  if (lent_.empty() && buffer_.size() >= unit) {
    buffer_.align(unit);
    const auto here = buffer_.readable();
    return here.first(std::min(most, here.size() / unit * unit));
  }
  if (lent_.size() < unit) {
    refill_lent();
    if (lent_.size() < unit && !receive_failure_.ok()) return receive_failure_;
  }
  return lent_.first(std::min(most, lent_.size() / unit * unit));
}

// Less than a unit is here, and more of the payload is to come: so nothing behind the payload is here.
void TcpLink::refill_lent() {
  if (!lent_.empty()) vacate();
  const std::span<std::byte> block = bounce_->take(*this);
  const auto kept = buffer_.readable();
  const std::size_t left = kept.size();
  if (left > 0) std::memcpy(block.data(), kept.data(), left);
  buffer_.consume(left);
  const std::size_t wanted = std::min<std::uint64_t>(payload_left_, block.size()) - left;
  const std::size_t behind = left + wanted == payload_left_ ? kBehindBytes : 0;
  const std::span<std::byte> all(block.data() + left, wanted + behind);  // Room behind the block: Bounce.
  const std::size_t got = receive(std::array{piece(all)});
  const std::size_t direct = std::min(got, wanted);
  buffer_.append(all.subspan(direct, got - direct));
  lent_ = block.first(left + direct);
}

void TcpLink::vacate() { buffer_.prepend(std::exchange(lent_, {})); }

void TcpLink::release(std::size_t bytes) {
  if (lent_.empty()) {
    buffer_.consume(bytes);
  } else {
    lent_ = lent_.subspan(bytes);
  }
  payload_left_ -= bytes;
}

void TcpLink::pop() { have_header_ = false; }

pollfd TcpLink::poll_entry() const {
  return {socket_.get(), static_cast<short>(send_unfinished_ ? POLLIN | POLLOUT : POLLIN), 0};
}

}  // namespace lockstep::internal
