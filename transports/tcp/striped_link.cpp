#include "transports/tcp/striped_link.hpp"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "transports/tcp/limits.hpp"

namespace lockstep::internal {

Result<std::unique_ptr<StripedLink>> StripedLink::make(std::vector<std::unique_ptr<TcpLink>> links,
                                                       int peer) {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_error("epoll_create1", errno);
  for (std::size_t i = 0; i < links.size(); ++i) {
    epoll_event event{};
    event.data.u64 = i;
    if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, links[i]->poll_entry().fd, &event) != 0) {
      return system_error("epoll_ctl", errno);
    }
  }
  return std::unique_ptr<StripedLink>(new StripedLink(std::move(links), peer, std::move(epoll)));
}

StripedLink::StripedLink(std::vector<std::unique_ptr<TcpLink>> links, int peer, Fd epoll)
    : links_(std::move(links)), peer_(peer), epoll_(std::move(epoll)), watched_(links_.size(), 0) {}

std::size_t StripedLink::unit_bytes(std::uint64_t unit, std::uint64_t total) const {
  return std::min<std::uint64_t>(kStripeUnit, total - unit * kStripeUnit);
}

// ---- sending ----

void StripedLink::start_sending() {
  announcement_ = {};
  outgoing_.assign(links_.size(), {});
  for (std::size_t i = 0; i < links_.size(); ++i) outgoing_[i].next_unit = i;
}

Result<bool> StripedLink::send(const FrameHeader& header, std::span<const std::byte> payload,
                               SendCursor& cursor) {
  if (payload.size() <= kStripeThreshold) return links_[0]->send(header, payload, cursor);
  if (cursor.header_bytes == 0) start_sending();
  if (cursor.header_bytes < sizeof header) {
    auto announced = send_announcement(header, payload.size());
    cursor.header_bytes = announcement_.header_bytes;
    if (!announced.ok() || !*announced) return announced;
  }
  bool done = true;
  cursor.payload_bytes = 0;
  for (std::size_t socket = 0; socket < links_.size(); ++socket) {
    auto sent = send_units(socket, payload);
    if (!sent.ok()) return sent;
    done = done && *sent;
    cursor.payload_bytes += outgoing_[socket].finished + outgoing_[socket].cursor.payload_bytes;
  }
  return done;
}

Result<bool> StripedLink::send_announcement(const FrameHeader& header, std::uint64_t payload_bytes) {
  FrameHeader announcement = header;
  announcement.bytes = 0;
  announcement.reserved = payload_bytes;
  return links_[0]->send(announcement, {}, announcement_);
}

// Sends this socket's units until it would block; true when none is left.
Result<bool> StripedLink::send_units(std::size_t socket, std::span<const std::byte> payload) {
  Outgoing& out = outgoing_[socket];
  for (; out.next_unit * kStripeUnit < payload.size(); out.next_unit += links_.size()) {
    const auto unit = payload.subspan(out.next_unit * kStripeUnit, unit_bytes(out.next_unit, payload.size()));
    FrameHeader header;
    header.index = static_cast<std::uint32_t>(out.next_unit);
    header.bytes = unit.size();
    auto sent = links_[socket]->send(header, unit, out.cursor);
    if (!sent.ok() || !*sent) return sent;
    out.finished += unit.size();
    out.cursor = {};
  }
  return true;
}

// ---- receiving ----

Result<const FrameHeader*> StripedLink::peek(const Awaited* awaited) {
  if (striped_head_) return &header_;
  const bool whole = awaited != nullptr && awaited->header.bytes <= kStripeThreshold;
  auto head = links_[0]->peek(whole ? awaited : nullptr);
  if (!head.ok() || *head == nullptr || (*head)->reserved == 0) return head;
  header_ = **head;
  header_.bytes = left_ = header_.reserved;
  header_.reserved = 0;
  links_[0]->pop();
  striped_head_ = true;
  unit_ = 0;
  unit_left_ = 0;
  return &header_;
}

// Whether the current unit's payload can be taken.
Result<bool> StripedLink::open_unit() {
  if (unit_left_ > 0) return true;
  auto head = current().peek();
  if (!head.ok()) return head.status();
  if (*head == nullptr) return false;
  if ((*head)->index != static_cast<std::uint32_t>(unit_) ||
      (*head)->bytes != unit_bytes(unit_, header_.bytes)) {
    return Status(
        ErrorCode::internal,
        "rank " + std::to_string(peer_) +
            " dealt a message to its sockets in another way: check LOCKSTEP_TCP_SOCKETS on all ranks",
        peer_);
  }
  unit_left_ = (*head)->bytes;
  return true;
}

void StripedLink::consumed(std::size_t bytes) {
  left_ -= bytes;
  unit_left_ -= bytes;
  if (bytes == 0 || unit_left_ > 0) return;
  current().pop();
  ++unit_;
}

Result<std::size_t> StripedLink::read(std::span<std::byte> into) {
  if (!striped_head_) return links_[0]->read(into);
  std::size_t total = 0;
  while (total < into.size() && left_ > 0) {
    auto open = open_unit();
    if (open.ok() && !*open) break;
    auto got = open.ok() ? current().read(into.subspan(total)) : Result<std::size_t>(open.status());
    if (!got.ok() && total == 0) return got;
    if (!got.ok() || *got == 0) break;
    consumed(*got);
    total += *got;
  }
  return total;
}

Result<std::span<const std::byte>> StripedLink::borrow(std::size_t unit, std::size_t most) {
  if (!striped_head_) return links_[0]->borrow(unit, most);
  if (left_ == 0) return std::span<const std::byte>();
  auto open = open_unit();
  if (!open.ok()) return open.status();
  if (!*open) return std::span<const std::byte>();
  return current().borrow(unit, most);
}

void StripedLink::release(std::size_t bytes) {
  if (!striped_head_) return links_[0]->release(bytes);
  current().release(bytes);
  consumed(bytes);
}

void StripedLink::pop() {
  if (!striped_head_) return links_[0]->pop();
  striped_head_ = false;
}

// ---- waiting and counting ----

std::uint32_t StripedLink::wanted_events(std::size_t socket) const {
  const bool receives = striped_head_ && left_ > 0 ? socket == unit_ % links_.size() : socket == 0;
  const bool sends = (links_[socket]->poll_entry().events & POLLOUT) != 0;
  return (receives ? std::uint32_t{EPOLLIN} : 0u) | (sends ? std::uint32_t{EPOLLOUT} : 0u);
}

pollfd StripedLink::poll_entry() const {
  for (std::size_t socket = 0; socket < links_.size(); ++socket) {
    epoll_event event{};
    event.events = wanted_events(socket);
    event.data.u64 = socket;
    if (event.events == watched_[socket]) continue;
    epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, links_[socket]->poll_entry().fd, &event);
    watched_[socket] = event.events;
  }
  return {epoll_.get(), POLLIN, 0};
}

std::uint64_t StripedLink::bytes_sent() const {
  std::uint64_t sum = 0;
  for (const auto& link : links_) sum += link->bytes_sent();
  return sum;
}

}  // namespace lockstep::internal
