// Matching: which message goes to which receive. The frames themselves move in matcher_io.cpp.
#include "collectives/engine/matcher.hpp"

#include <algorithm>

#include "collectives/engine/limits.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep::internal {

Matcher::Matcher(Transport* transport, Sink& sink, int size, int self, bool on_device)
    : transport_(transport),
      sink_(sink),
      self_(self),
      on_device_(on_device),
      peers_(static_cast<std::size_t>(size)) {}

void Matcher::end(Operation& operation, Status status) {
  --pending_;
  sink_.complete(operation, std::move(status));
}

void Matcher::queue(int peer, Outgoing frame) {
  peers_[static_cast<std::size_t>(peer)].outgoing.push_back(std::move(frame));
  ++queued_;
}

void Matcher::post(Operation& operation) {
  ++pending_;
  if (!operation.message.is_send) {
    post_receive(operation);
  } else if (operation.message.peer == self_) {
    send_to_self(operation);
  } else {
    post_send(operation);
  }
}

void Matcher::post_receive(Operation& operation) {
  posted_.push_back(&operation);
  match_stored();
}

void Matcher::post_send(Operation& operation) {
  const Message& message = operation.message;
  Peer& peer = peers_[static_cast<std::size_t>(message.peer)];
  const std::uint64_t bytes = message.count * size_of(message.type);
  const bool eager = bytes <= (on_device_ ? 0 : kEagerBytes);
  operation.message_id = peer.next_id++;
  Outgoing offer;
  offer.header.kind = FrameKind::offer;
  offer.header.sequence = operation.message_id;
  offer.header.index = eager ? kWithPayload : 0;
  offer.header.tag = message.tag;
  offer.header.bytes = eager ? bytes : 0;
  offer.header.facts.type = message.type;
  offer.header.facts.count = message.count;
  if (eager) {
    offer.data = static_cast<const std::byte*>(message.buffer);
    offer.operation = &operation;
  } else {
    peer.awaiting_accept.push_back(&operation);
  }
  queue(message.peer, std::move(offer));
}

/// A message to this rank itself never meets a link. Where nobody waits for it, it is taken whole, so that
/// the send is complete.
void Matcher::send_to_self(Operation& operation) {
  const Message& message = operation.message;
  FrameHeader offer;
  offer.tag = message.tag;
  offer.index = kWithPayload;
  offer.facts.type = message.type;
  offer.facts.count = message.count;
  const std::span data(static_cast<const std::byte*>(message.buffer), message.count * size_of(message.type));
  if (Operation* receive = take_posted(self_, offer); receive != nullptr) {
    deliver(*receive, self_, offer, data);
  } else if (unexpected_.size() >= kMaxUnexpected) {
    return end(operation, full_store(self_));
  } else {
    unexpected_.push_back({self_, offer, {data.begin(), data.end()}, true});
  }
  end(operation, {});
}

Status Matcher::full_store(int peer) const {
  return Status(ErrorCode::refused,
                std::to_string(kMaxUnexpected) +
                    " messages lie unreceived at this rank, so that no further one of rank " +
                    std::to_string(peer) + " can be looked at: post their receives first",
                peer);
}

bool Matcher::matches(const Operation& receive, int peer, const FrameHeader& offer) const {
  return (receive.message.peer == kAnySource || receive.message.peer == peer) &&
         (receive.message.tag == kAnyTag || receive.message.tag == offer.tag);
}

Operation* Matcher::take_posted(int peer, const FrameHeader& offer) {
  const auto found = std::find_if(posted_.begin(), posted_.end(),
                                  [&](Operation* receive) { return matches(*receive, peer, offer); });
  if (found == posted_.end()) return nullptr;
  Operation* receive = *found;
  posted_.erase(found);
  return receive;
}

Status Matcher::check_fit(const Operation& receive, int peer, const FrameHeader& offer) const {
  const std::string sender = "rank " + std::to_string(peer) + " sent " + std::to_string(offer.facts.count) +
                             " elements of " + std::string(name_of(offer.facts.type)) + " with tag " +
                             std::to_string(offer.tag);
  if (offer.facts.type != receive.message.type) {
    return Status(ErrorCode::mismatch,
                  sender + ", but this receive expects " + std::string(name_of(receive.message.type)) +
                      "; the buffer is unchanged",
                  peer);
  }
  if (offer.facts.count > receive.message.count) {
    return Status(ErrorCode::invalid_argument,
                  sender + ", but the buffer holds " + std::to_string(receive.message.count) +
                      "; it is unchanged: receive with a larger count",
                  peer);
  }
  return {};
}

void Matcher::match_stored() {
  for (auto message = unexpected_.begin(); message != unexpected_.end();) {
    Operation* receive = message->complete ? take_posted(message->peer, message->offer) : nullptr;
    if (receive == nullptr) {
      ++message;
      continue;
    }
    const Unexpected taken = std::move(*message);
    message = unexpected_.erase(message);
    if (taken.offer.index == kWithPayload) {
      deliver(*receive, taken.peer, taken.offer, taken.payload);
    } else {
      accept(*receive, taken.peer, taken.offer);
    }
  }
}

void Matcher::deliver(Operation& receive, int peer, const FrameHeader& offer,
                      std::span<const std::byte> payload) {
  if (Status fit = check_fit(receive, peer, offer); !fit.ok()) return end(receive, std::move(fit));
  copy_bytes(receive.message.buffer, payload.data(), payload.size());
  receive.received = {peer, offer.tag, offer.facts.count};
  end(receive, {});
}

void Matcher::accept(Operation& receive, int peer, const FrameHeader& offer) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  Outgoing answer;
  answer.header.kind = FrameKind::accept;
  answer.header.sequence = offer.sequence;
  if (Status fit = check_fit(receive, peer, offer); !fit.ok()) {
    answer.header.index = kRefused;
    answer.header.facts = {.type = receive.message.type, .count = receive.message.count};
    queue(peer, std::move(answer));
    return end(receive, std::move(fit));
  }
  receive.message_id = offer.sequence;
  receive.received = {peer, offer.tag, offer.facts.count};
  receive.path = Operation::Path::links;  // From now on its buffer may be written to.
  entry.awaiting_message.push_back(&receive);
  queue(peer, std::move(answer));
  // Accepted in this order, the payloads come in this order.
  if (Link* link = transport_->existing_link(peer, Channel::point_to_point); link != nullptr)
    link->expect(
        {static_cast<std::byte*>(receive.message.buffer), offer.facts.count * size_of(offer.facts.type)});
}

void Matcher::on_accept(int peer, const FrameHeader& header) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  const auto found = std::find_if(entry.awaiting_accept.begin(), entry.awaiting_accept.end(),
                                  [&](Operation* send) { return send->message_id == header.sequence; });
  if (found == entry.awaiting_accept.end()) return;  // Answer to a message that was given up.
  Operation& send = **found;
  entry.awaiting_accept.erase(found);
  if (header.index != 0) {
    return end(send,
               Status(ErrorCode::refused,
                      "rank " + std::to_string(peer) + " refused the message: its receive expects at most " +
                          std::to_string(header.facts.count) + " elements of " +
                          std::string(name_of(header.facts.type)),
                      peer));
  }
  Outgoing payload;
  payload.header.kind = FrameKind::message;
  payload.header.sequence = header.sequence;
  payload.header.bytes = send.message.count * size_of(send.message.type);
  payload.data = static_cast<const std::byte*>(send.message.buffer);
  payload.operation = &send;
  queue(peer, std::move(payload));
}

void Matcher::abandon() {
  posted_.clear();
  for (Peer& peer : peers_) {
    peer.awaiting_accept.clear();
    peer.awaiting_message.clear();
    peer.incoming.operation = nullptr;
    peer.outgoing.clear();
  }
  pending_ = queued_ = 0;
}

/// Ends what needs the link to `peer` once it is known why; whether that was anything. What can come from
/// anybody waits on.
bool Matcher::lose_peer(int peer, const Status& status) {
  const auto cause = sink_.cause_of_loss(peer, status);
  if (!cause) return false;
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  std::vector<Operation*> lost(entry.awaiting_accept.begin(), entry.awaiting_accept.end());
  lost.insert(lost.end(), entry.awaiting_message.begin(), entry.awaiting_message.end());
  for (Outgoing& frame : entry.outgoing) {
    if (frame.operation != nullptr) lost.push_back(frame.operation);
  }
  for (auto receive = posted_.begin(); receive != posted_.end();) {
    if ((*receive)->message.peer == peer) {
      lost.push_back(*receive);
      receive = posted_.erase(receive);
    } else {
      ++receive;
    }
  }
  if (entry.incoming.operation != nullptr) lost.push_back(entry.incoming.operation);
  unexpected_.remove_if([&](const Unexpected& message) { return message.peer == peer && !message.complete; });
  queued_ -= entry.outgoing.size();
  entry.awaiting_accept.clear();
  entry.awaiting_message.clear();
  entry.outgoing.clear();
  entry.incoming.operation = nullptr;  // What is still to come of the head message is dropped.
  entry.incoming.store = nullptr;
  if (entry.ended) entry.incoming = {};
  for (Operation* operation : lost) end(*operation, *cause);
  return !lost.empty();
}

/// As lose_peer(), where all that came from `peer` has been read and nothing more will.
bool Matcher::end_peer(int peer, const Status& status) {
  Peer& entry = peers_[static_cast<std::size_t>(peer)];
  if (!entry.ended) last_end_ = status;
  entry.ended = true;
  return lose_peer(peer, status);
}

/// Whether there were others, and nobody can send any more.
bool Matcher::all_ended() const {
  if (last_end_.ok()) return false;
  return std::all_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    return peer.ended || &peer == &peers_[static_cast<std::size_t>(self_)];
  });
}

bool Matcher::end_receives_from_any() {
  const auto has_source = [](const Operation* receive) { return receive->message.peer != kAnySource; };
  if (std::all_of(posted_.begin(), posted_.end(), has_source)) return false;
  const Status why(ErrorCode::peer_lost,
                   "no other rank is left to receive from; the last: " + last_end_.message(),
                   last_end_.culprit());
  const auto cause = sink_.cause_of_loss(last_end_.culprit(), why);
  if (!cause) return false;
  const auto from_any = std::stable_partition(posted_.begin(), posted_.end(), has_source);
  const std::vector<Operation*> orphans(from_any, posted_.end());
  posted_.erase(from_any, posted_.end());
  for (Operation* orphan : orphans) end(*orphan, *cause);
  return true;
}

}  // namespace lockstep::internal
