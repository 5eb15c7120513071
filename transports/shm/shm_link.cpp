#include "transports/shm/shm_link.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <string>

#include "lib/reduce/copy.hpp"
#include "transports/check_frame.hpp"

namespace lockstep::internal {

ShmLink::ShmLink(ShmDomain& domain, int peer, int rank, Channel channel, Env& env)
    : domain_(domain),
      peer_(peer),
      rank_(rank),
      out_(domain.ring_to(peer, channel), env),
      in_(domain.ring_from(peer, channel)) {}

Status ShmLink::fault(RingState state) const {
  const std::string rank = "rank " + std::to_string(rank_);
  if (state == RingState::closed)
    return Status(ErrorCode::peer_lost, rank + " closed the communicator", rank_);
  return Status(ErrorCode::internal, rank + " left bytes in shared memory that are no frames", rank_);
}

void ShmLink::publish_sent() {
  out_.publish();
  domain_.ring(peer_);
}

void ShmLink::publish_consumed() {
  in_.publish();
  domain_.ring(peer_);
}

Result<bool> ShmLink::send(const FrameHeader& header, std::span<const std::byte> payload,
                           SendCursor& cursor) {
  bool unpublished = false;
  if (cursor.header_bytes == 0) {
    if (out_.room(sizeof header) < sizeof header) return stopped();
    out_.put(std::as_bytes(std::span(&header, 1)));
    cursor.header_bytes = sizeof header;
    bytes_sent_ += sizeof header;
    unpublished = true;
  }
  while (cursor.payload_bytes < payload.size()) {
    // The last turn is published with the padding; a small message so is published once. A full ring is
    // polled without a store, which would take the line from the reader.
    if (unpublished && cursor.payload_bytes > 0) publish_sent();
    const std::size_t turn = std::min(payload.size() - cursor.payload_bytes, kRingTurnBytes);
    const std::size_t bytes = std::min(turn, out_.room(turn));
    if (bytes == 0) {
      if (unpublished) publish_sent();
      return stopped();
    }
    out_.put(payload.subspan(cursor.payload_bytes, bytes));
    cursor.payload_bytes += bytes;
    bytes_sent_ += bytes;
    unpublished = true;
  }
  out_.pad();
  publish_sent();
  return true;
}

// Why nothing more fits.
Result<bool> ShmLink::stopped() const {
  if (out_.state() != RingState::open) return fault(out_.state());
  return false;
}

Result<const FrameHeader*> ShmLink::peek(const Awaited*) {
  if (have_header_) return &header_;
  if (in_.available(sizeof header_) < sizeof header_) {
    if (in_.state() != RingState::open) return fault(in_.state());
    return nullptr;
  }
  std::memcpy(&header_, in_.front(sizeof header_).data(), sizeof header_);
  if (!is_frame(header_)) return fault(RingState::corrupt);
  in_.consume(sizeof header_);
  have_header_ = true;
  payload_left_ = header_.bytes;
  return &header_;
}

// `bytes` of payload were used up; the writer may overwrite them.
void ShmLink::took(std::size_t bytes) {
  in_.consume(bytes);
  payload_left_ -= bytes;
  // The end of a message is told by pop().
  if (payload_left_ > 0) publish_consumed();
}

Result<std::size_t> ShmLink::read(std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size() && payload_left_ > 0) {
    const std::size_t turn =
        std::min({into.size() - done, static_cast<std::size_t>(payload_left_), kRingTurnBytes});
    if (in_.available(turn) == 0) break;
    const std::span<const std::byte> bytes = in_.front(turn);
    copy_bytes(into.data() + done, bytes.data(), bytes.size());
    done += bytes.size();
    took(bytes.size());
  }
  if (done == 0 && in_.state() != RingState::open) return fault(in_.state());
  return done;
}

Result<std::span<const std::byte>> ShmLink::borrow(std::size_t unit, std::size_t most) {
  assert(have_header_ && unit > 0 && unit <= 16 && (unit & (unit - 1)) == 0);
  const std::size_t wanted =
      std::min({most, static_cast<std::size_t>(payload_left_), kRingTurnBytes}) & ~(unit - 1);
  if (wanted == 0) return std::span<const std::byte>();
  const std::size_t here = in_.available(wanted);
  if (in_.state() != RingState::open) return fault(in_.state());
  return in_.front(std::min(here, wanted) & ~(unit - 1));
}

void ShmLink::release(std::size_t bytes) {
  assert(bytes <= payload_left_);
  if (bytes > 0) took(bytes);
}

void ShmLink::pop() {
  assert(have_header_ && payload_left_ == 0);
  have_header_ = false;
  in_.pad();
  publish_consumed();
}

}  // namespace lockstep::internal
