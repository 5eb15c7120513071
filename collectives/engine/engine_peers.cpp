// What peers tell: revokes, probes, frames of other calls; and what this rank asks when nothing moves.
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "collectives/engine/engine.hpp"
#include "collectives/engine/reason.hpp"

namespace lockstep::internal {

/// Why the communicator is revoked, as `member` was told in shared memory; ok when it was not.
Status Engine::reason_in_domain(int member) const {
  const MemberControl& told = domain_->control(member);
  // 1: the reason is being written, which takes a moment; unless its writer died there, then the loss is the
  // reason.
  for (int i = 0; i < 1000 && told.revoked.load(std::memory_order_acquire) == 1; ++i) sched_yield();
  if (told.revoked.load(std::memory_order_acquire) != 2) return {};
  // Whoever may write there may leave it without an end.
  return decode_reason({told.reason, strnlen(told.reason, sizeof told.reason)}, group_.size());
}

/// Whether there is a revoke in shared memory, which is carried out then. Who writes its reason may have been
/// stopped in the midst, and keeps all others from writing theirs: it ends without one after a while.
bool Engine::check_domain() {
  if (domain_->control(group_.rank).revoked.load(std::memory_order_acquire) == 0) return false;
  Status why = reason_in_domain(group_.rank);
  if (why.ok()) {
    const Nanos now = env_.now();
    if (unexplained_ == 0) unexplained_ = now;
    if (now - unexplained_ <= kExplanationWait) return false;
    why =
        Status(ErrorCode::aborted, "a rank has revoked the communicator, and was stopped before it said why");
  }
  revoke(why);
  return true;
}

/// As check_domain(), once what the peers had done their part of before has ended well.
bool Engine::heed_domain() {
  if (domain_->control(group_.rank).revoked.load(std::memory_order_acquire) == 0) return false;
  advance_all();
  if (state() == ErrorCode::ok) step_messages();
  return state() != ErrorCode::ok || check_domain();
}

Result<bool> Engine::on_frame(int peer, Channel channel, const FrameHeader& header, Link& link) {
  switch (header.kind) {
    case FrameKind::probe: {
      const FrameHeader probe = header;
      link.pop();
      LOCKSTEP_RETURN_IF_ERROR(on_probe(peer, channel, probe));
      return true;
    }
    case FrameKind::revoke:
      return on_revoke(peer, header, link);
    case FrameKind::data: {
      if (header.sequence >= sequence_) return false;
      const CallNote theirs = CallNote::of(header, channel);
      // A call takes all that its program has coming before it ends: what is left of one was not for it.
      if (under_way(header.sequence) == nullptr || !note_of(header.sequence).is_as(theirs))
        return explain_mismatch(peer, theirs);
      return false;
    }
    default:
      return Status(ErrorCode::internal,
                    who(peer) + " sent a frame of kind " + std::to_string(static_cast<int>(header.kind)) +
                        " on a link for collectives",
                    peer);
  }
}

Status Engine::on_probe(int peer, Channel channel, const FrameHeader& header) {
  const CallNote mine = note_of(header.sequence);
  const CallNote theirs = CallNote::of(header, channel);
  if (mine.sequence_plus_one == theirs.sequence_plus_one)
    return mine.is_as(theirs) ? Status() : explain_mismatch(peer, theirs);
  if (header.sequence >= sequence_) {
    CallNote& kept = peer_probes_[static_cast<std::size_t>(peer)];
    if (kept.sequence_plus_one == 0) ++probes_kept_;
    kept = theirs;
  }
  return {};
}

Result<bool> Engine::on_revoke(int peer, const FrameHeader& header, Link& link) {
  if (header.bytes > kMaxReasonBytes)
    return Status(ErrorCode::internal, who(peer) + " sent an oversized reason", peer);
  std::string& text = partial_reasons_[&link];
  std::byte piece[512];
  while (text.size() < header.bytes) {
    auto got = link.read({piece, std::min<std::size_t>(sizeof piece, header.bytes - text.size())});
    if (!got.ok()) return got.status();
    if (*got == 0) return false;
    text.append(reinterpret_cast<const char*>(piece), *got);
  }
  link.pop();
  if (heard_.ok()) heard_ = decode_reason(text, group_.size());
  return heard_;
}

/// Looks at the head of every link for what no running step would find: probes, revokes, data of a call that
/// differs.
Status Engine::scan_links() {
  for (int peer = 0; peer < group_.size(); ++peer) {
    for (const Channel channel : {Channel::urgent, Channel::collective}) {
      Link* link = peer == group_.rank ? nullptr : transport_->existing_link(peer, channel);
      while (link != nullptr) {
        auto head = link->peek();
        if (!head.ok() || *head == nullptr) break;  // A lost link counts where data are awaited from it.
        auto consumed = on_frame(peer, channel, **head, *link);
        if (!consumed.ok()) return consumed.status();
        if (!*consumed) break;
      }
    }
  }
  return {};
}

/// Looks now and then at what nothing is awaited from, memory or the links for collectives; whether nobody
/// has revoked.
bool Engine::listen(Nanos now) {
  if (state() != ErrorCode::ok) return false;
  if (domain_ != nullptr) return !heed_domain();
  if (!transport_ || now - listened_ < kListenEvery) return true;
  listened_ = now;
  Status status;
  try {
    static_cast<void>(transport_->service());
    status = scan_links();
  } catch (const std::bad_alloc&) {  // Only a look: the next may find memory for new links.
  }
  if (!status.ok()) revoke(status);
  pass_on();  // What has come to the links meanwhile wakes nobody any more.
  return status.ok();
}

Operation* Engine::oldest_active(bool urgent) const {
  Operation* oldest = nullptr;
  for (Operation* operation : active_) {
    if (operation->urgent == urgent && (oldest == nullptr || operation->sequence < oldest->sequence))
      oldest = operation;
  }
  return oldest;
}

/// Where the oldest call of either kind, for which all others may wait, has not moved for a while: looks for
/// what peers tell, and asks.
void Engine::ask_around(Nanos now) {
  for (const bool urgent : {true, false}) {
    Operation* const oldest = oldest_active(urgent);
    if (oldest == nullptr || now - oldest->last_moved < kProbeAfter) continue;
    // A peer that waits for this rank with another call, or has revoked, comes to it.
    if (!listen(now)) return;
    ask_for(*oldest, now);
    if (state() != ErrorCode::ok) return;
  }
}

/// Compares calls with everybody, and tells those who are awaited that they are.
void Engine::ask_for(Operation& operation, Nanos now) {
  if (Status status = domain_ ? compare_records(operation) : Status(); !status.ok()) return revoke(status);
  if (operation.path != Operation::Path::links) return;
  if (const int peer = operation.link_run.passed_by();
      peer != kSelf && now - operation.last_moved > kExplanationWait) {
    return revoke(Status(ErrorCode::mismatch, who(peer) +
                                                  " has gone on to later operations without sending what " +
                                                  who(group_.rank) + " awaits in " + operation.describe() +
                                                  ": the two called different operations"));
  }
  if (now - operation.probed < kProbeEvery) return;
  operation.probed = now;
  FrameHeader probe;
  probe.kind = FrameKind::probe;
  probe.sequence = operation.sequence;
  probe.facts = operation.call.facts;
  PeerTable& peers = peers_of(operation.urgent);
  for (const int peer : waiting_for(operation)) {
    if (!peers.has_posted(peer)) peers.post(peer, probe);  // One that cannot leave is enough.
  }
}

// ---- mismatches ----
// Two ranks were compared: both are named, and neither is to blame before the others.

const Operation* Engine::under_way(std::uint64_t sequence) const {
  const auto is_it = [&](const Operation* operation) { return operation->sequence == sequence; };
  if (const auto it = std::find_if(active_.begin(), active_.end(), is_it); it != active_.end()) return *it;
  if (const auto it = std::find_if(pending_.begin(), pending_.end(), is_it); it != pending_.end()) return *it;
  return nullptr;
}

/// What this rank called: as long as it is under way, and of what is over the last kRecentCalls.
Engine::CallNote Engine::note_of(std::uint64_t sequence) const {
  const CallNote& recent = history_[sequence % kRecentCalls];
  if (recent.sequence_plus_one == sequence + 1) return recent;
  const Operation* const operation = under_way(sequence);
  return operation != nullptr ? CallNote{sequence + 1, operation->call.facts, operation->urgent} : CallNote{};
}

Status Engine::explain_mismatch(int peer, const CallNote& theirs) const {
  const std::uint64_t sequence = theirs.sequence_plus_one - 1;
  const CallNote mine = note_of(sequence);
  const bool known = mine.sequence_plus_one == theirs.sequence_plus_one;
  const auto text = [&](const CallNote& call) {
    const char* priority = call.urgent ? " with a priority above 0" : " without a priority";
    return describe(call.facts) + (known && mine.urgent != theirs.urgent ? priority : "");
  };
  std::string here = known ? text(mine) : "another operation";
  if (known && mine.is_as(theirs)) here = "the same with other counts";
  return Status(ErrorCode::mismatch, "operation #" + std::to_string(sequence) + " differs: " + who(peer) +
                                         " called " + text(theirs) + ", but " + who(group_.rank) +
                                         " called " + here);
}

Status Engine::wrong_size(int peer, const FrameHeader& header, std::uint64_t expected) {
  return Status(ErrorCode::mismatch, "operation #" + std::to_string(header.sequence) + ", " +
                                         describe(header.facts) + ", differs: " + who(peer) + " sent " +
                                         std::to_string(header.bytes) + " bytes where " + who(group_.rank) +
                                         " expects " + std::to_string(expected) +
                                         ": the counts that the two gave for each other differ");
}

Status Engine::compare_records(const Operation& operation) {
  for (int member = 0; member < domain_->size(); ++member) {
    const MemberControl& control = domain_->control(member);
    const auto theirs = control.recent[operation.sequence % kRecentCalls].read(operation.sequence);
    if (theirs && *theirs != operation.call.facts)
      return explain_mismatch(member, {operation.sequence + 1, *theirs});
    if (control.left.load(std::memory_order_acquire) != 0 &&
        control.left.load(std::memory_order_relaxed) <= operation.sequence + 1) {
      return Status(ErrorCode::peer_lost,
                    who(member) + " left before its operation #" + std::to_string(operation.sequence),
                    member);
    }
  }
  return {};
}

/// Whose fingerprint is here, and another than this rank's. What it called is recorded a few instructions
/// later (attempt_recorded), between which it may have lost its processor, or its life: nothing until then,
/// but not for ever.
std::optional<Status> Engine::explain_domain_mismatch(int member, const Operation& operation) {
  const CallRecord& record = domain_->control(member).recent[operation.sequence % kRecentCalls];
  if (const auto theirs = record.read(operation.sequence))
    return explain_mismatch(member, {operation.sequence + 1, *theirs});
  const Nanos now = env_.now();
  if (unrecorded_ == 0) unrecorded_ = now;
  if (!record.is_past(operation.sequence) && now < unrecorded_ + kRecordWait) return std::nullopt;
  return Status(ErrorCode::mismatch, "operation #" + std::to_string(operation.sequence) +
                                         " differs between " + who(member) + " and " + who(group_.rank) +
                                         ", which called " + operation.describe());
}

std::vector<int> Engine::waiting_for(const Operation& operation) const {
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

std::string Engine::peers_awaited(const Operation& operation) const {
  std::string text;
  for (const int peer : waiting_for(operation)) {
    text += (text.empty() ? "" : ", ") + who(peer);
    if (text.size() > 400) return text + ", ...";
  }
  return text;
}

/// A call of `peer` that this rank has yet to make, where that is known: from shared memory, or what the peer
/// has sent for it, which waits here.
Engine::CallNote Engine::missed_here(int peer) const {
  if (domain_ != nullptr) {
    const auto theirs = domain_->control(peer).recent[sequence_ % kRecentCalls].read(sequence_);
    return theirs ? CallNote{sequence_ + 1, *theirs} : CallNote{};
  }
  for (const Channel channel : {Channel::urgent, Channel::collective}) {
    Link* link = transport_->existing_link(peer, channel);
    auto head = link != nullptr ? link->peek() : nullptr;
    if (head.ok() && *head != nullptr && (*head)->kind == FrameKind::data)
      return CallNote::of(**head, channel);
  }
  return peer_probes_[static_cast<std::size_t>(peer)];
}

/// Who waits there sends no message meanwhile, unless another thread does.
std::string Engine::calls_missed(const Operation& message) const {
  std::string text;
  for (int peer = 0; peer < group_.size() && text.size() < 400; ++peer) {
    if (peer == group_.rank || (message.message.peer != kAnySource && message.message.peer != peer)) continue;
    const CallNote call = missed_here(peer);
    if (call.sequence_plus_one > sequence_)
      text += "; " + who(peer) + " has called " + describe(call.facts) + " #" +
              std::to_string(call.sequence_plus_one - 1) + ", which this rank has not";
  }
  return text;
}

/// What waits for no peer by itself is behind the oldest of its kind, which does.
std::string Engine::waiting_text(const Operation& operation) const {
  if (operation.kind == Operation::Kind::message) {
    const bool any = operation.message.peer == kAnySource;
    return "it waits for " + (any ? "a message of any rank" : peers_awaited(operation)) +
           calls_missed(operation);
  }
  if (const std::string peers = peers_awaited(operation); !peers.empty()) return "it waits for " + peers;
  const Operation* const oldest = oldest_active(operation.urgent);
  const std::string peers = oldest != nullptr ? peers_awaited(*oldest) : "";
  if (peers.empty()) return "it waits for an earlier operation";
  return "it waits for an earlier operation, " + oldest->describe() + ", which waits for " + peers;
}

}  // namespace lockstep::internal
