#include "collectives/engine/comparison.hpp"

#include <algorithm>

#include "collectives/engine/limits.hpp"

namespace lockstep::internal {

Comparison::Comparison(const EngineGroup& group, Transport* transport, const InFlight& in_flight,
                       const CallHistory& history, Env& env)
    : group_(group),
      transport_(transport),
      domain_(transport != nullptr ? transport->domain() : nullptr),
      in_flight_(in_flight),
      history_(history),
      env_(env),
      who_waits_(group.size()) {}

CallNote Comparison::own_call(std::uint64_t sequence) const {
  if (const auto recent = history_.recent(sequence)) return *recent;
  const Operation* const operation = in_flight_.find(sequence);
  return operation != nullptr ? operation->note() : CallNote{};
}

Status Comparison::difference(int peer, const CallNote& theirs) const {
  const std::uint64_t sequence = theirs.sequence_plus_one - 1;
  const CallNote mine = own_call(sequence);
  const bool known = mine.sequence_plus_one == theirs.sequence_plus_one;
  const auto text = [&](const CallNote& call) {
    const char* priority = call.urgent ? " with a priority above 0" : " without a priority";
    return describe(call.facts) + (known && mine.urgent != theirs.urgent ? priority : "");
  };
  const std::string there = text(theirs);
  std::string here = known ? text(mine) : "another operation";
  if (here == there) here = "the same with other counts";  // The one fact that a description leaves out.
  return Status(ErrorCode::mismatch, "operation #" + std::to_string(sequence) +
                                         " differs: " + group_.who(peer) + " called " + there + ", but " +
                                         group_.who(group_.rank) + " called " + here);
}

Status Comparison::difference_of_sizes(int peer, const FrameHeader& header, std::uint64_t expected) const {
  return Status(ErrorCode::mismatch, "operation #" + std::to_string(header.sequence) + ", " +
                                         describe(header.facts) + ", differs: " + group_.who(peer) +
                                         " sent " + std::to_string(header.bytes) + " bytes where " +
                                         group_.who(group_.rank) + " expects " + std::to_string(expected) +
                                         ": the counts that the two gave for each other differ");
}

Status Comparison::with_records(const Operation& operation) const {
  for (int member = 0; member < domain_->size(); ++member) {
    const MemberControl& control = domain_->control(member);
    const auto theirs = control.recent[operation.sequence % kRecentCalls].read(operation.sequence);
    if (theirs && *theirs != operation.call.facts)
      return difference(member, {operation.sequence + 1, *theirs});
    if (control.left.load(std::memory_order_acquire) != 0 &&
        control.left.load(std::memory_order_relaxed) <= operation.sequence + 1) {
      return Status(ErrorCode::peer_lost,
                    group_.who(member) + " left before its operation #" + std::to_string(operation.sequence),
                    member);
    }
  }
  return {};
}

/// A call is recorded a few instructions after its fingerprint is written (Engine::attempt_recorded), between
/// which its rank may have lost its processor, or its life.
std::optional<Status> Comparison::with_fingerprint(int member, const Operation& operation) {
  const CallRecord& record = domain_->control(member).recent[operation.sequence % kRecentCalls];
  if (const auto theirs = record.read(operation.sequence))
    return difference(member, {operation.sequence + 1, *theirs});
  const Nanos now = env_.now();
  if (unrecorded_ == 0) unrecorded_ = now;
  if (!record.is_past(operation.sequence) && now < unrecorded_ + kRecordWait) return std::nullopt;
  return Status(ErrorCode::mismatch, "operation #" + std::to_string(operation.sequence) +
                                         " differs between " + group_.who(member) + " and " +
                                         group_.who(group_.rank) + ", which called " + operation.describe());
}

std::vector<int> Comparison::peers_awaited(const Operation& operation) const {
  std::vector<int> peers;
  if (operation.kind == Operation::Kind::message) {
    if (operation.message.peer != kAnySource) peers.push_back(operation.message.peer);
  } else if (operation.path == Operation::Path::links) {
    operation.link_run.waiting_for(peers);
  } else if (operation.path == Operation::Path::domain) {
    operation.domain_run.waiting_for(*domain_, peers);
  } else if (operation.path == Operation::Path::inline_line) {
    operation.inline_run.waiting_for(*domain_, peers);
  }
  return peers;
}

void Comparison::note_waits(int peer, Channel channel, const FrameHeader& told) {
  const bool is_another = told.tag >= 0 && told.tag < group_.size() && told.tag != peer;
  if (is_another && told.tag != group_.rank)
    who_waits_.tell(peer, channel == Channel::urgent, told.sequence, told.tag, env_.now());
}

/// What was told before the operation last moved is of another wait.
Comparison::AwaitedPeers Comparison::awaited_of(const Operation& operation) const {
  const Nanos since = std::max(operation.last_moved, env_.now() - kWaitCounts);
  const bool may_tell = operation.path == Operation::Path::links;
  AwaitedPeers found;
  for (const int peer : peers_awaited(operation)) {
    const auto end =
        may_tell ? who_waits_.told_by(peer, operation.urgent, operation.sequence, since) : std::nullopt;
    (end ? found.waiting : found.silent).push_back(peer);
    if (end && std::find(found.ends.begin(), found.ends.end(), *end) == found.ends.end())
      found.ends.push_back(*end);
  }
  return found;
}

std::vector<int> Comparison::culprits_awaited(const Operation& operation) const {
  auto [culprits, waiting, ends] = awaited_of(operation);
  for (const int end : ends) {
    if (std::find(culprits.begin(), culprits.end(), end) == culprits.end()) culprits.push_back(end);
  }
  return culprits;
}

std::optional<FrameHeader> Comparison::waits(const Operation& operation, int peer) const {
  const std::vector<int> culprits = culprits_awaited(operation);
  const auto other = std::find_if(culprits.begin(), culprits.end(), [&](int one) { return one != peer; });
  if (other == culprits.end()) return std::nullopt;
  FrameHeader told;
  told.kind = FrameKind::waits;
  told.sequence = operation.sequence;
  told.tag = *other;
  told.facts = operation.call.facts;
  return told;
}

/// "rank 1 (host-2, pid 4711), which waits for rank 3 (host-3, pid 4711)"
std::string Comparison::names_awaited(const Operation& operation) const {
  const AwaitedPeers awaited = awaited_of(operation);
  std::string names = group_.who(awaited.silent);
  if (awaited.waiting.empty()) return names;
  if (!names.empty()) names += ", and for ";
  return names + group_.who(awaited.waiting) +
         (awaited.waiting.size() == 1 ? ", which waits for " : ", which wait for ") +
         group_.who(awaited.ends);
}

/// A call of `peer` that this rank has yet to make, where that is known: from shared memory, or what the peer
/// has sent for it, which waits here.
CallNote Comparison::missed_here(int peer, std::uint64_t next) const {
  if (domain_ != nullptr) {
    const auto theirs = domain_->control(peer).recent[next % kRecentCalls].read(next);
    return theirs ? CallNote{next + 1, *theirs} : CallNote{};
  }
  for (const Channel channel : {Channel::urgent, Channel::collective}) {
    Link* link = transport_->existing_link(peer, channel);
    auto head = link != nullptr ? link->peek() : nullptr;
    if (head.ok() && *head != nullptr && (*head)->kind == FrameKind::data)
      return CallNote::of(**head, channel);
  }
  return history_.probe_of(peer);
}

/// Who waits there sends no message meanwhile, unless another thread does.
std::string Comparison::calls_missed(const Operation& message, std::uint64_t next) const {
  std::string text;
  for (int peer = 0; peer < group_.size() && text.size() < 400; ++peer) {
    if (peer == group_.rank || (message.message.peer != kAnySource && message.message.peer != peer)) continue;
    const CallNote call = missed_here(peer, next);
    if (call.sequence_plus_one > next)
      text += "; " + group_.who(peer) + " has called " + describe(call.facts) + " #" +
              std::to_string(call.sequence_plus_one - 1) + ", which this rank has not";
  }
  return text;
}

/// What waits for no peer by itself is behind the oldest of its kind, which does.
std::string Comparison::waiting_text(const Operation& operation, std::uint64_t next) const {
  if (operation.kind == Operation::Kind::message) {
    const bool any = operation.message.peer == kAnySource;
    return "it waits for " + (any ? "a message of any rank" : names_awaited(operation)) +
           calls_missed(operation, next);
  }
  if (const std::string peers = names_awaited(operation); !peers.empty()) return "it waits for " + peers;
  const Operation* const oldest = in_flight_.oldest(operation.urgent);
  const std::string peers = oldest != nullptr ? names_awaited(*oldest) : "";
  if (peers.empty()) return "it waits for an earlier operation";
  return "it waits for an earlier operation, " + oldest->describe() + ", which waits for " + peers;
}

}  // namespace lockstep::internal
