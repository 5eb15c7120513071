// Whose doing it is that a peer has left: its last words, and how long they are awaited.
#include <algorithm>
#include <new>

#include "collectives/engine/engine.hpp"

namespace lockstep::internal {

/// A peer that left may have done so because of another's failure. It then said so in shared memory, or on
/// its links for collectives, behind what it sent before: that is the cause, and not that it is gone. Else
/// the session may know already whose death made it leave.
Status Engine::true_cause(const Status& why) try {
  const Status known = requests_.standing(lost_);
  if (!heard_.get().ok()) return heard_.get();
  const bool left = why.code() == ErrorCode::peer_lost && why.culprit() >= 0 && why.culprit() < group_.size();
  if (left && domain_ != nullptr) {
    if (Status said = domain_revoke_.told_to(group_.rank); !said.ok()) return said;
    // It may have left for what is on its way to this rank.
    if (Status said = domain_revoke_.told_to(why.culprit()); !said.ok()) return said;
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

/// What `peer`, which has left, may still say, on links that are here or being made. Takes a word that is at
/// the head of one, and nothing else.
Engine::LastWord Engine::last_word_of(int peer) {
  static_cast<void>(transport_->service());
  LastWord most = LastWord::none;
  for (const Channel channel : {Channel::collective, Channel::urgent}) {
    Link* link = transport_->existing_link(peer, channel);
    auto head = link != nullptr ? link->peek() : nullptr;
    const bool may_come = link != nullptr ? head.ok() : transport_->link_is_under_way(peer, channel);
    if (!may_come) continue;
    const bool is_here = link != nullptr && *head != nullptr;
    const bool is_word = is_here && (*head)->kind == FrameKind::revoke;
    most = std::max(most, is_here && !is_word ? LastWord::behind_data : LastWord::awaited);
    if (is_word && heard_.get().ok()) static_cast<void>(on_revoke(peer, **head, *link));
  }
  return heard_.get().ok() ? most : LastWord::heard;
}

/// Whether a call that has failed so waits a moment, since the word of the peer that left may be on its way.
/// What lies behind data is for true_cause() to find, which drops them.
bool Engine::awaits_word(const Status& why) try {
  const int peer = why.culprit();
  return why.code() == ErrorCode::peer_lost && peer >= 0 && peer < group_.size() && domain_ == nullptr &&
         transport_ && requests_.standing(lost_).ok() && last_word_of(peer) == LastWord::awaited &&
         may_await_cause(peer);
} catch (const std::bad_alloc&) {
  return false;
}

/// As true_cause(), where messages alone need the peer: the calls under way may yet end well with what it has
/// sent them, so nothing of that is dropped. The link for collectives may also be the later one to end. What
/// it says it says once, so the communicator is revoked for it.
std::optional<Status> Engine::cause_of_loss(int peer, const Status& why) {
  if (why.code() != ErrorCode::peer_lost || peer < 0) return why;
  if (domain_ != nullptr) return true_cause(why);
  const LastWord word = last_word_of(peer);
  if (word == LastWord::heard) {
    requests_.look_again();
    return heard_.get();
  }
  return word != LastWord::none && may_await_cause(peer) ? std::nullopt : std::optional(why);
}

/// Whether what needs `peer`, which has left, may still wait to be told why: for a while, and not until
/// deadlines, which would end the whole communicator.
bool Engine::may_await_cause(int peer) {
  Nanos& since = links_ended_[static_cast<std::size_t>(peer)];
  const Nanos now = env_.now();
  if (since == 0) since = now;
  const auto ends_soon = [now](const Operation* operation, Nanos timeout) {
    const Nanos end = operation->deadline != 0 ? operation->deadline : now + timeout;
    return timeout > 0 && end - now < kProbeAfter;
  };
  const auto call_ends_soon = [&](const Operation* operation) {
    return ends_soon(operation, operation->call.timeout);
  };
  const auto message_ends_soon = [&](const Operation* operation) {
    const Message& message = operation->message;
    return (message.peer == peer || message.peer == kAnySource) && ends_soon(operation, message.timeout);
  };
  return now - since <= kExplanationWait &&
         std::none_of(in_flight_.active().begin(), in_flight_.active().end(), call_ends_soon) &&
         std::none_of(in_flight_.pending().begin(), in_flight_.pending().end(), call_ends_soon) &&
         std::none_of(in_flight_.messages().begin(), in_flight_.messages().end(), message_ends_soon);
}

/// The reason that a peer's link ends with; ok when it ends without one.
Status Engine::last_words(int peer, Channel channel, Link& link) {
  std::uint64_t taken = 0;
  for (const Operation* operation : in_flight_.active()) {
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
