#include "transports/sim/sim_link.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "transports/check_frame.hpp"

namespace lockstep::internal {

namespace {
constexpr std::size_t kMostHeld = 64 * 1024;  // as much as a real transport keeps in a receive buffer
}  // namespace

Status SimLink::lost(Status& failure) {
  failure = Status(ErrorCode::peer_lost,
                   "rank " + std::to_string(peer_) + " is lost: its simulated connection ended", peer_);
  return failure;
}

Result<bool> SimLink::send(const FrameHeader& header, std::span<const std::byte> payload,
                           SendCursor& cursor) {
  if (!send_failure_.ok()) return send_failure_;
  if (outgoing_.broken()) return lost(send_failure_);
  const auto head = std::as_bytes(std::span(&header, 1)).subspan(cursor.header_bytes);
  if (!head.empty()) {
    const std::size_t accepted = outgoing_.offer(head);
    cursor.header_bytes += accepted;
    sent_ += accepted;
    if (accepted < head.size()) return false;
  }
  const auto body = payload.subspan(cursor.payload_bytes);
  if (body.empty()) return true;
  const std::size_t accepted = outgoing_.offer(body);
  cursor.payload_bytes += accepted;
  sent_ += accepted;
  return accepted == body.size();
}

Result<const FrameHeader*> SimLink::peek(const Awaited*) {
  if (!receive_failure_.ok()) return receive_failure_;
  if (header_bytes_ == sizeof header_) return &header_;
  const auto raw = std::as_writable_bytes(std::span(&header_, 1));
  header_bytes_ += incoming_.take(raw.subspan(header_bytes_));
  if (header_bytes_ < sizeof header_) {
    if (incoming_.ended()) return lost(receive_failure_);
    return nullptr;
  }
  if (!is_frame(header_)) return receive_failure_ = no_frame("rank " + std::to_string(peer_), peer_);
  payload_left_ = header_.bytes;
  return &header_;
}

Result<std::size_t> SimLink::read(std::span<std::byte> into) {
  if (!receive_failure_.ok()) return receive_failure_;
  const std::size_t wanted = std::min<std::uint64_t>(into.size(), payload_left_);
  const std::size_t from_hold = std::min(wanted, held());
  if (from_hold > 0) std::memcpy(into.data(), hold_.data() + hold_begin_, from_hold);
  hold_begin_ += from_hold;
  const std::size_t bytes = from_hold + incoming_.take(into.subspan(from_hold, wanted - from_hold));
  payload_left_ -= bytes;
  if (bytes == 0 && wanted > 0 && incoming_.ended()) return lost(receive_failure_);
  return bytes;
}

void SimLink::refill_hold(std::size_t unit, std::size_t bytes) {
  if (held() == 0 || hold_begin_ % unit != 0 || hold_begin_ > kMostHeld) {
    hold_.erase(hold_.begin(), hold_.begin() + static_cast<std::ptrdiff_t>(hold_begin_));
    hold_begin_ = 0;
  }
  const std::size_t before = held();
  if (before >= bytes) return;
  hold_.resize(hold_begin_ + bytes);
  const std::size_t got = incoming_.take(std::span(hold_).subspan(hold_begin_ + before));
  hold_.resize(hold_begin_ + before + got);
}

Result<std::span<const std::byte>> SimLink::borrow(std::size_t unit, std::size_t most) {
  if (!receive_failure_.ok()) return receive_failure_;
  const std::size_t wanted = std::min<std::uint64_t>({most, payload_left_, kMostHeld});
  refill_hold(unit, wanted);
  const std::size_t ready = std::min(wanted, held()) / unit * unit;
  if (ready == 0 && wanted >= unit && incoming_.ended()) return lost(receive_failure_);
  return std::span<const std::byte>(hold_.data() + hold_begin_, ready);
}

void SimLink::release(std::size_t bytes) {
  hold_begin_ += bytes;
  payload_left_ -= bytes;
}

void SimLink::pop() { header_bytes_ = 0; }

}  // namespace lockstep::internal
