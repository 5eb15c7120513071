#include "transports/tcp/tcp_link.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

// Up to here one copy is cheaper than making the kernel look at two pieces.
constexpr std::size_t kCopiedPayload = 1 << 10;

iovec piece(const std::byte* data, std::size_t bytes) {
  return {const_cast<std::byte*>(data), bytes};  // sendmsg only reads.
}

}  // namespace

TcpLink::TcpLink(Fd socket, int peer)
    : socket_(std::move(socket)),
      peer_(peer),
      address_(remote_address(socket_).text()),
      buffer_(kPeekBytes) {}

Status TcpLink::lost(const std::string& evidence) const {
  return Status(ErrorCode::peer_lost,
                "rank " + std::to_string(peer_) + " at " + address_ + " is gone: " + evidence, peer_);
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
  if (body.size() > kCopiedPayload) {
    return send_some(socket_.get(),
                     std::array{piece(head.data(), head.size()), piece(body.data(), body.size())});
  }
  std::array<std::byte, sizeof header + kCopiedPayload> both;
  std::memcpy(both.data(), head.data(), head.size());
  if (!body.empty()) std::memcpy(both.data() + head.size(), body.data(), body.size());
  return send_some(socket_.get(), std::span<const std::byte>(both).first(head.size() + body.size()));
}

void TcpLink::finish_sending() { ::shutdown(socket_.get(), SHUT_WR); }

// ---- receiving ----

bool TcpLink::account(const Transfer& transfer) {
  if (transfer.ended) receive_failure_ = lost("it closed the connection");
  if (transfer.error != 0) receive_failure_ = lost(std::strerror(transfer.error));
  bytes_received_ += transfer.bytes;
  return transfer.bytes > 0;
}

bool TcpLink::fill(std::size_t bytes) {
  if (!receive_failure_.ok()) return false;
  const Transfer got = receive_some(socket_.get(), buffer_.writable(bytes));
  buffer_.commit(got.bytes);
  return account(got);
}

Result<const FrameHeader*> TcpLink::peek() {
  if (have_header_) return &header_;
  if (buffer_.size() < sizeof header_) fill(kPeekBytes - buffer_.size());
  if (buffer_.size() < sizeof header_) {
    if (!receive_failure_.ok()) return receive_failure_;
    return nullptr;
  }
  std::memcpy(&header_, buffer_.readable().data(), sizeof header_);
  if (header_.magic != kFrameMagic || header_.version != kFrameVersion) {
    receive_failure_ = Status(ErrorCode::internal,
                              "rank " + std::to_string(peer_) + " at " + address_ +
                                  " sent bytes that are not a frame: check that all ranks run one version",
                              peer_);
    return receive_failure_;
  }
  buffer_.consume(sizeof header_);
  payload_left_ = header_.bytes;
  have_header_ = true;
  return &header_;
}

Result<std::size_t> TcpLink::read(std::span<std::byte> into) {
  into = into.first(std::min<std::uint64_t>(into.size(), payload_left_));
  std::size_t got = read_buffered(into);
  payload_left_ -= got;
  if (got < into.size()) got += read_wire(into.subspan(got));
  if (got == 0 && !into.empty() && !receive_failure_.ok()) return receive_failure_;
  return got;
}

std::size_t TcpLink::read_buffered(std::span<std::byte> into) {
  const std::size_t bytes = std::min(into.size(), buffer_.size());
  if (bytes == 0) return 0;
  std::memcpy(into.data(), buffer_.readable().data(), bytes);
  buffer_.consume(bytes);
  return bytes;
}

// The buffer is empty. What follows the payload goes there, so that the next header costs no call of its own.
std::size_t TcpLink::read_wire(std::span<std::byte> into) {
  if (!receive_failure_.ok()) return 0;
  into = into.first(std::min(into.size(), kReceiveSlice));
  const std::span<std::byte> behind = buffer_.writable(kBehindBytes);
  const std::array parts{iovec{into.data(), into.size()}, iovec{behind.data(), behind.size()}};
  const Transfer got =
      into.size() == payload_left_ ? receive_some(socket_.get(), parts) : receive_some(socket_.get(), into);
  account(got);
  const std::size_t direct = std::min(got.bytes, into.size());
  buffer_.commit(got.bytes - direct);
  payload_left_ -= direct;
  return direct;
}

Result<std::span<const std::byte>> TcpLink::borrow(std::size_t unit, std::size_t most) {
  using Lent = std::span<const std::byte>;
  most = std::min<std::uint64_t>(most, payload_left_) / unit * unit;
  if (most == 0) return Lent();
  if (buffer_.size() < unit) {
    const std::size_t ahead =
        std::min<std::uint64_t>(payload_left_, kBounceBytes - kBehindBytes) + kBehindBytes;
    buffer_.grow(std::bit_ceil(ahead));
    fill(ahead - buffer_.size());
    if (buffer_.size() < unit && !receive_failure_.ok()) return receive_failure_;
  }
  buffer_.align(unit);
  const Lent here = buffer_.readable();
  return here.first(std::min(most, here.size() / unit * unit));
}

void TcpLink::release(std::size_t bytes) {
  buffer_.consume(bytes);
  payload_left_ -= bytes;
}

void TcpLink::pop() { have_header_ = false; }

pollfd TcpLink::poll_entry() const {
  return {socket_.get(), static_cast<short>(send_unfinished_ ? POLLIN | POLLOUT : POLLIN), 0};
}

}  // namespace lockstep::internal
