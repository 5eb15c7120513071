// Whose doing it is that a peer has left: its last words, and how long they are awaited.
#include <algorithm>
#include <new>

#include "collectives/engine/engine.hpp"

namespace lockstep::internal {

/// A peer that left may have done so because of another's failure. It then said so in shared memory, or on
/// its links for collectives, behind what it sent before: that is the cause, and not that it is gone. Else
/// the session may know already whose death made it leave.
Status Engine::true_cause(const Status& why) try {
  const Status known = requested();
  if (!heard_.ok()) return heard_;
  const bool left = why.code() == ErrorCode::peer_lost && why.culprit() >= 0 && why.culprit() < group_.size();
  if (left && domain_ != nullptr) {
    if (Status said = reason_in_domain(); !said.ok()) return said;
  }
  // Its word may have come on a link that nobody has asked for yet.
  if (left && transport_) static_cast<void>(transport_->service());
  for (const Channel channel : {Channel::collective, Channel::urgent}) {
    Link* link = left && transport_ ? transport_->existing_link(why.culprit(), channel) : nullptr;
    if (link == nullptr) continue;
    if (Status said = last_words(why.culprit(), channel, *link); !said.ok()) return said;
  }
  return left && !known.ok() ? known : why;
} catch (const std::bad_alloc&) {
  return why;
}

/// As true_cause(), where messages alone need the peer: the calls under way may yet end well with what it has
/// sent them, so nothing of that is dropped. The link for collectives may also be the later one to end. What
/// it says it says once, so the communicator is revoked for it.
std::optional<Status> Engine::cause_of_loss(int peer, const Status& why) {
  if (why.code() != ErrorCode::peer_lost || peer < 0) return why;
  if (domain_ != nullptr) return true_cause(why);
  static_cast<void>(transport_->service());
  bool may_say_more = false;
  for (const Channel channel : {Channel::collective, Channel::urgent}) {
    Link* link = transport_->existing_link(peer, channel);
    auto head = link != nullptr ? link->peek() : nullptr;
    if (link == nullptr) may_say_more |= transport_->link_is_under_way(peer, channel);
    if (link == nullptr || !head.ok()) continue;
    may_say_more = true;
    if (heard_.ok() && *head != nullptr && (*head)->kind == FrameKind::revoke)
      heard_ = on_revoke(peer, **head, *link).status();
  }
  if (!heard_.ok()) {
    has_request_.store(true, std::memory_order_release);
    return heard_;
  }
  return may_say_more && may_await_cause(peer) ? std::nullopt : std::optional(why);
}

/// Whether messages that need `peer`, which has left, may still wait to be told why: for a while, and not
/// until their own deadlines, which would end the whole communicator.
bool Engine::may_await_cause(int peer) {
  Nanos& since = links_ended_[static_cast<std::size_t>(peer)];
  const Nanos now = env_.now();
  if (since == 0) since = now;
  return now - since <= kExplanationWait &&
         std::none_of(messages_.begin(), messages_.end(), [&](const Operation* operation) {
           const Message& message = operation->message;
           const Nanos end = operation->deadline != 0 ? operation->deadline : now + message.timeout;
           return message.timeout > 0 && (message.peer == peer || message.peer == kAnySource) &&
                  end - now < kProbeAfter;
         });
}

/// The reason that a peer's link ends with; ok when it ends without one.
Status Engine::last_words(int peer, Channel channel, Link& link) {
  std::uint64_t taken = 0;
  for (const Operation* operation : active_) {
    if (operation->path == Operation::Path::links && operation->urgent == (channel == Channel::urgent))
      taken += operation->link_run.taken_from(peer);
  }
  while (true) {
    auto head = link.peek();
    if (!head.ok() || *head == nullptr) return {};
    if ((*head)->kind == FrameKind::revoke) return on_revoke(peer, **head, link).status();
    auto dropped = drop_message(link, **head, taken);
    if (!dropped.ok() || !*dropped) return {};
  }
}

}  // namespace lockstep::internal
