#include "collectives/engine/peer_table.hpp"

#include <cassert>
#include <new>

#include "collectives/engine/limits.hpp"

namespace lockstep::internal {

PeerTable::PeerTable(Transport& transport, Channel channel, int size, int self)
    : transport_(transport), channel_(channel), self_(self), peers_(static_cast<std::size_t>(size)) {}

Result<Link*> PeerTable::link(int peer) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  if (entry.link == nullptr) {
    auto link = transport_.link(peer, channel_);
    if (!link.ok()) return link.status();
    entry.link = *link;
  }
  return entry.link;
}

void PeerTable::enter(std::uint64_t sequence, const std::vector<int>& peers) {
  for (const int peer : peers) {
    Peer& entry = peers_[static_cast<std::size_t>(peer)];
    if (entry.order.empty()) entry.order.resize(kMaxInFlight);
    assert(entry.count < kMaxInFlight);
    entry.order[(entry.head + entry.count++) % kMaxInFlight] = sequence;
  }
}

bool PeerTable::may_send(int peer, std::uint64_t sequence) const {
  const Peer& entry = peers_[static_cast<std::size_t>(peer)];
  return entry.count > 0 && entry.order[entry.head] == sequence &&
         (entry.posted.empty() || entry.mid_message);
}

void PeerTable::leave(int peer, std::uint64_t sequence) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  assert(entry.count > 0 && entry.order[entry.head] == sequence);
  static_cast<void>(sequence);
  entry.head = (entry.head + 1) % kMaxInFlight;
  --entry.count;
}

void PeerTable::post(int peer, const FrameHeader& header, std::string payload) {
  if (peer == self_) return;
  FrameHeader sized = header;
  sized.bytes = payload.size();
  peers_[static_cast<std::size_t>(peer)].posted.push_back({sized, std::move(payload), {}});
}

bool PeerTable::flush_peer(int peer) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  bool moved = false;
  while (!entry.posted.empty() && !entry.mid_message) {
    auto link_to = link(peer);
    if (!link_to.ok()) {
      drop_posted(entry);  // The peer is gone; who waits for it finds out there.
      return moved;
    }
    if (*link_to == nullptr) return moved;
    Posted& front = entry.posted.front();
    const auto payload = std::as_bytes(std::span(front.payload));
    const std::size_t payload_before = front.cursor.payload_bytes;
    const auto sent = (*link_to)->send(front.header, payload, front.cursor);
    moved |= front.cursor.payload_bytes > payload_before;  // A link sends a long message by and by.
    if (!sent.ok()) {
      entry.needs_no_word |= (*link_to)->reaches_peer();
      drop_posted(entry);
      return moved;
    }
    if (!sent.value()) return moved;
    entry.needs_no_word |= front.header.kind == FrameKind::revoke;
    entry.posted.pop_front();
    moved = true;
  }
  return moved;
}

bool PeerTable::flush() {
  bool moved = false;
  for (int peer = 0; peer < size(); ++peer) {
    if (!peers_[static_cast<std::size_t>(peer)].posted.empty()) moved |= flush_peer(peer);
  }
  return moved;
}

bool PeerTable::has_posted() const {
  for (const Peer& peer : peers_) {
    if (!peer.posted.empty()) return true;
  }
  return false;
}

bool PeerTable::awaits_link() const {
  for (int peer = 0; peer < size(); ++peer) {
    const Peer& entry = peers_[static_cast<std::size_t>(peer)];
    if (!entry.posted.empty() && entry.link == nullptr && transport_.link_is_under_way(peer, channel_))
      return true;
  }
  return false;
}

void PeerTable::drop_posted() {
  for (Peer& peer : peers_) peer.late |= drop_posted(peer);
}

bool PeerTable::drop_posted(Peer& peer) {
  const bool misses = !peer.posted.empty() && (peer.link == nullptr || !peer.link->reaches_peer());
  peer.missed |= misses;
  peer.posted.clear();
  return misses;
}

void PeerTable::adopt_rest(int peer, const FrameHeader& header, std::span<const std::byte> payload,
                           const SendCursor& cursor) try {
  if (payload.size() > kMostAdopted) return;
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  Posted rest{header, std::string(reinterpret_cast<const char*>(payload.data()), payload.size()), cursor};
  entry.posted.push_front(std::move(rest));
  entry.mid_message = false;
} catch (const std::bad_alloc&) {  // As one that is too long.
}

}  // namespace lockstep::internal
