// SimPipe (sim_link.hpp): how much a stream takes, when it arrives, and in which pieces.
#include <algorithm>
#include <cstring>

#include "transports/sim/sim_link.hpp"

namespace lockstep::internal {

std::size_t SimPipe::admit(std::size_t wanted) {
  const std::size_t room = options_.in_flight - std::min(options_.in_flight, stored());
  std::size_t accepted = std::min(wanted, room);
  if (accepted > 1 && options_.delivery == SimDelivery::split && schedule_.random().one_in(4)) {
    accepted = 1 + schedule_.random().below(accepted);  // a short write
  }
  if (accepted == wanted) return accepted;
  if (accepted < room) {
    schedule_.wake(sender_, schedule_.now() + options_.delay.draw(schedule_.random()));
  } else {
    sender_waits_ = true;
  }
  return accepted;
}

std::size_t SimPipe::offer(std::span<const std::byte> bytes) {
  const std::size_t accepted = admit(bytes.size());
  if (accepted == 0) return 0;
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(accepted));
  std::size_t left = accepted;
  while (left > 0) {
    std::size_t piece = left;
    if (options_.delivery == SimDelivery::bytewise) piece = 1;
    if (options_.delivery == SimDelivery::split) piece = 1 + schedule_.random().below(left);
    dispatch(piece);
    left -= piece;
  }
  return accepted;
}

void SimPipe::dispatch(std::size_t bytes) {
  const Nanos now = schedule_.now();
  // What leaves at one moment may travel together; with `whole` it always does (header and payload of a
  // message).
  const bool may_merge =
      last_dispatch_ == now && !pieces_.empty() && options_.delivery != SimDelivery::bytewise;
  last_dispatch_ = now;
  if (may_merge && (options_.delivery == SimDelivery::whole || schedule_.random().one_in(2))) {
    pieces_.back().bytes += bytes;
    return;
  }
  const Nanos gap = options_.delivery == SimDelivery::bytewise ? 1 : 0;
  last_arrival_ = std::max(last_arrival_ + gap, now + options_.delay.draw(schedule_.random()));
  pieces_.push_back({last_arrival_, bytes});
  schedule_.note(static_cast<std::uint64_t>(sender_) << 32 | static_cast<std::uint64_t>(reader_));
  schedule_.note(bytes);
  schedule_.wake(reader_, last_arrival_);
}

void SimPipe::settle() {
  while (!pieces_.empty() && pieces_.front().arrival <= schedule_.now()) {
    arrived_ += pieces_.front().bytes;
    pieces_.pop_front();
  }
}

std::size_t SimPipe::take(std::span<std::byte> into) {
  settle();
  const std::size_t bytes = std::min(into.size(), arrived_);
  if (bytes == 0) return 0;
  std::memcpy(into.data(), bytes_.data() + taken_, bytes);
  taken_ += bytes;
  arrived_ -= bytes;
  if (taken_ * 2 >= bytes_.size()) {  // amortised: at most as many bytes move as were taken
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(taken_));
    taken_ = 0;
  }
  if (sender_waits_) {
    sender_waits_ = false;
    schedule_.wake(sender_, schedule_.now() + options_.delay.draw(schedule_.random()));
  }
  return bytes;
}

bool SimPipe::ended() {
  settle();
  return arrived_ == 0 && pieces_.empty() && schedule_.now() >= ended_at_;
}

void SimPipe::end() {
  if (ended_at_ != kForever) return;
  ended_at_ = std::max(last_arrival_, schedule_.now() + options_.delay.draw(schedule_.random()));
  schedule_.wake(reader_, ended_at_);
}

void SimPipe::cut() {
  settle();
  const std::size_t under_way = stored() - arrived_;
  std::size_t lost = schedule_.random().below(under_way + 1);
  bytes_.resize(bytes_.size() - lost);
  while (lost > 0) {
    const std::size_t piece = std::min(lost, pieces_.back().bytes);
    pieces_.back().bytes -= piece;
    if (pieces_.back().bytes == 0) pieces_.pop_back();
    lost -= piece;
  }
  end();
}

void SimPipe::break_off() {
  if (broken_at_ != kForever) return;
  broken_at_ = schedule_.now() + options_.delay.draw(schedule_.random());
  schedule_.wake(sender_, broken_at_);
}

}  // namespace lockstep::internal
