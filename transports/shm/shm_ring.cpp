#include "transports/shm/shm_ring.hpp"

#include <algorithm>

namespace lockstep::internal {
namespace {

constexpr std::uint64_t round_down(std::uint64_t bytes) { return bytes & ~std::uint64_t{kRingGranule - 1}; }
constexpr std::uint64_t round_up(std::uint64_t bytes) { return round_down(bytes + kRingGranule - 1); }
constexpr std::size_t place_of(std::uint64_t byte) { return byte & (kRingBytes - 1); }

}  // namespace

std::size_t RingWriter::room(std::size_t wanted) noexcept {
  if (limit_ - written_ < wanted && state_ == RingState::open) {
    const std::uint64_t consumed = ring_.control->consumed.load(std::memory_order_acquire);
    if (consumed > written_ || written_ - consumed > kRingBytes) {
      state_ = RingState::corrupt;
    } else if (ring_.control->reader_closed.load(std::memory_order_acquire) != 0) {
      state_ = RingState::closed;
    } else {
      limit_ = round_down(consumed) + kRingBytes;
    }
  }
  return state_ == RingState::open ? limit_ - written_ : 0;
}

void RingWriter::put(std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return;
  const std::size_t place = place_of(written_);
  const std::size_t before_wrap = std::min(bytes.size(), kRingBytes - place);
  hand_over_.copy(ring_.bytes + place, bytes.data(), before_wrap);
  hand_over_.copy(ring_.bytes, bytes.data() + before_wrap, bytes.size() - before_wrap);
  written_ += bytes.size();
}

void RingWriter::pad() noexcept { written_ = round_up(written_); }

std::size_t RingReader::available(std::size_t wanted) noexcept {
  // Less is written than was read where the writer let a message end without its padding.
  if ((written_ < consumed_ || written_ - consumed_ < wanted) && state_ == RingState::open) {
    // Closed first: what is published after a look at `written` came before the close.
    const bool closed = ring_.control->writer_closed.load(std::memory_order_acquire) != 0;
    const std::uint64_t written = ring_.control->written.load(std::memory_order_acquire);
    if (written < written_ || written - consumed_ > kRingBytes) {
      state_ = RingState::corrupt;
    } else {
      written_ = written;
      if (closed && written_ == consumed_) state_ = RingState::closed;
    }
  }
  return state_ == RingState::open ? written_ - consumed_ : 0;
}

std::span<const std::byte> RingReader::front(std::size_t most) const noexcept {
  const std::size_t place = place_of(consumed_);
  const std::size_t here = static_cast<std::size_t>(written_ - consumed_);
  return {ring_.bytes + place, std::min({most, here, kRingBytes - place})};
}

void RingReader::pad() noexcept { consumed_ = round_up(consumed_); }

}  // namespace lockstep::internal
