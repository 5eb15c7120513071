// The frames of the matcher: sending queues and the head message of each link.
#include <algorithm>

#include "collectives/engine/limits.hpp"
#include "collectives/engine/matcher.hpp"

namespace lockstep::internal {

bool Matcher::step() {
  if (idle()) return false;
  bool moved = false;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (peer != self_ && wants_link(peer)) moved |= step_peer(peer);
  }
  return (all_ended() && end_receives_from_any()) || moved;
}

bool Matcher::wants_link(int peer) const {
  const Peer& entry = peers_[static_cast<std::size_t>(peer)];
  if (!entry.outgoing.empty() || !entry.awaiting_accept.empty() || !entry.awaiting_message.empty() ||
      entry.incoming.active)
    return true;
  return std::any_of(posted_.begin(), posted_.end(), [&](const Operation* receive) {
    return receive->message.peer == peer || (receive->message.peer == kAnySource && !entry.ended);
  });
}

bool Matcher::step_peer(int peer) {
  auto link = transport_->link(peer, Channel::point_to_point);
  if (!link.ok()) return end_peer(peer, link.status());
  if (*link == nullptr) return false;
  const bool sent = send_frames(peer, **link);
  const bool received = receive_frames(peer, **link);
  return sent || received;
}

bool Matcher::send_frames(int peer, Link& link) {
  std::deque<Outgoing>& outgoing = peers_[static_cast<std::size_t>(peer)].outgoing;
  bool moved = false;
  for (std::size_t next = 0; next < outgoing.size();) {  // Those before it are under way, and not over.
    Outgoing& frame = outgoing[next];
    const std::size_t before = frame.cursor.header_bytes + frame.cursor.payload_bytes;
    const auto sent = link.send(frame.header, {frame.data, frame.header.bytes}, frame.cursor);
    if (!sent.ok()) {  // What came before can still be read.
      moved |= receive_frames(peer, link);
      return lose_peer(peer, sent.status()) || moved;
    }
    moved |= frame.cursor.header_bytes + frame.cursor.payload_bytes > before;
    if (!sent.value()) {
      if (frame.cursor.header_bytes == 0 || !link.may_begin()) return moved;
      ++next;
      continue;
    }
    Operation* operation = frame.operation;
    outgoing.erase(outgoing.begin() + static_cast<std::ptrdiff_t>(next));
    --queued_;
    if (operation != nullptr) end(*operation, {});
    moved = true;
  }
  return moved;
}

bool Matcher::receive_frames(int peer, Link& link) {
  bool moved = false;
  while (receive_frame(peer, link, moved)) {
  }
  return moved;
}

/// Whether the head message came to its end; `moved`, if anything did.
bool Matcher::receive_frame(int peer, Link& link, bool& moved) {
  Incoming& incoming = peers_[static_cast<std::size_t>(peer)].incoming;
  const auto lost = [&](const Status& why) {
    moved |= end_peer(peer, why);
    return false;
  };
  const auto head = link.peek();
  if (!head.ok()) return lost(head.status());
  if (head.value() == nullptr) return false;
  const FrameHeader& header = *head.value();
  if (!incoming.active) {
    if (!begin_frame(peer, header)) return false;
    incoming.active = true;
    moved = true;
  }
  const auto whole = continue_payload(peer, header, link);
  if (!whole.ok()) return lost(whole.status());
  if (!whole.value()) return false;
  const FrameHeader finished = header;
  link.pop();
  finish_frame(peer, finished);
  return moved = true;
}

bool Matcher::take_in() {
  bool moved = false;
  for (int peer = 0; peer < static_cast<int>(peers_.size()); ++peer) {
    if (peer == self_ || (!idle() && wants_link(peer))) continue;  // step() sees to those.
    Link* link = transport_->existing_link(peer, Channel::point_to_point);
    // Its end is looked at when somebody needs it.
    const auto has_some = [&] {
      const auto head = link != nullptr ? link->peek() : nullptr;
      return head.ok() && head.value() != nullptr;
    };
    while (unexpected_.size() < kMaxUnexpected && has_some() && receive_frame(peer, *link, moved)) {
    }
  }
  return moved;
}

/// Decides where the payload of the head message goes. False: not now (the store of unmatched messages is
/// full).
bool Matcher::begin_frame(int peer, const FrameHeader& header) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  entry.incoming.operation = nullptr;
  entry.incoming.store = nullptr;
  if (header.kind == FrameKind::offer) return begin_offer(peer, header);
  if (header.kind == FrameKind::message) {
    const auto found =
        std::find_if(entry.awaiting_message.begin(), entry.awaiting_message.end(),
                     [&](Operation* receive) { return receive->message_id == header.sequence; });
    if (found != entry.awaiting_message.end() &&
        header.bytes == (*found)->received.count * size_of((*found)->message.type)) {
      entry.incoming.operation = *found;
      entry.awaiting_message.erase(found);
    }
  }
  return true;
}

bool Matcher::begin_offer(int peer, const FrameHeader& header) {
  Incoming& incoming = peers_[static_cast<std::size_t>(peer)].incoming;
  const std::uint64_t payload = header.index == 0 ? 0 : header.facts.count * size_of(header.facts.type);
  const bool honest = header.index <= kWithPayload && header.bytes <= kEagerBytes && header.bytes == payload;
  if (Operation* receive = honest ? take_posted(peer, header) : nullptr; receive != nullptr) {
    take_offer(*receive, peer, header);
    return true;
  }
  if (unexpected_.size() >= kMaxUnexpected) {
    const Status full = full_store(peer);
    std::vector<Operation*> receives(posted_.begin(), posted_.end());
    posted_.clear();
    for (Operation* receive : receives) end(*receive, full);
    return false;
  }
  if (!honest) return true;  // Sizes that contradict each other: read and dropped.
  unexpected_.push_back({.peer = peer, .offer = header, .payload = {}, .complete = false});
  unexpected_.back().payload.resize(header.bytes);
  incoming.store = &unexpected_.back().payload;
  return true;
}

/// For a receive that is posted. Without payload it is accepted once the offer is out of the way.
void Matcher::take_offer(Operation& receive, int peer, const FrameHeader& offer) {
  if (offer.index == kWithPayload) {
    if (Status fit = check_fit(receive, peer, offer); !fit.ok())
      return end(receive, std::move(fit));  // The payload is read and dropped.
    receive.received = {peer, offer.tag, offer.facts.count};
    receive.path = Operation::Path::links;  // From now on its buffer may be written to.
  }
  peers_[static_cast<std::size_t>(peer)].incoming.operation = &receive;
}

Result<bool> Matcher::continue_payload(int peer, const FrameHeader& header, Link& link) {
  Incoming& incoming = peers_[static_cast<std::size_t>(peer)].incoming;
  std::byte discard[1024];
  while (incoming.received < header.bytes) {
    const std::uint64_t left = header.bytes - incoming.received;
    std::span<std::byte> into{discard,
                              static_cast<std::size_t>(std::min<std::uint64_t>(left, sizeof discard))};
    if (incoming.operation != nullptr) {
      into = {static_cast<std::byte*>(incoming.operation->message.buffer) + incoming.received, left};
    } else if (incoming.store != nullptr) {
      into = {incoming.store->data() + incoming.received, left};
    }
    auto got = link.read(into);
    if (!got.ok()) return got.status();
    if (*got == 0) return false;
    incoming.received += *got;
  }
  return true;
}

void Matcher::finish_frame(int peer, const FrameHeader& header) {
  Incoming& incoming = peers_[static_cast<std::size_t>(peer)].incoming;
  Operation* operation = incoming.operation;
  std::vector<std::byte>* store = incoming.store;
  incoming = {};
  if (header.kind == FrameKind::accept) return on_accept(peer, header);
  const bool without_payload = header.kind == FrameKind::offer && header.index == 0;
  if (operation != nullptr) return without_payload ? accept(*operation, peer, header) : end(*operation, {});
  if (header.kind != FrameKind::offer) return;
  for (Unexpected& message : unexpected_) {
    if (&message.payload == store) message.complete = true;
  }
  match_stored();
}

}  // namespace lockstep::internal
