// What peers tell: revokes, probes, frames of other calls; and what this rank asks when nothing moves.
#include <new>

#include "collectives/engine/engine.hpp"

namespace lockstep::internal {

/// Whether there is a revoke in shared memory, which is carried out then.
bool Engine::check_domain() {
  const auto why = domain_revoke_.take();
  if (why) revoke(*why);
  return why.has_value();
}

/// As check_domain(), once what the peers had done their part of before has ended well.
bool Engine::heed_domain() {
  if (!domain_revoke_.is_told()) return false;
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
    case FrameKind::waits: {
      const FrameHeader told = header;
      link.pop();
      comparison_.note_waits(peer, channel, told);
      return true;
    }
    case FrameKind::revoke:
      return on_revoke(peer, header, link);
    case FrameKind::data: {
      if (header.sequence >= sequence_) return false;
      const CallNote theirs = CallNote::of(header, channel);
      // A call takes all that its program has coming before it ends: what is left of one was not for it.
      if (in_flight_.find(header.sequence) == nullptr || !comparison_.own_call(header.sequence).is_as(theirs))
        return comparison_.difference(peer, theirs);
      return false;
    }
    default:
      return Status(ErrorCode::internal,
                    who(peer) + " sent a frame of kind " + std::to_string(static_cast<int>(header.kind)) +
                        " on a link for collectives",
                    peer);
  }
}

Status Engine::wrong_size(int peer, const FrameHeader& header, std::uint64_t expected) {
  return comparison_.difference_of_sizes(peer, header, expected);
}

Status Engine::on_probe(int peer, Channel channel, const FrameHeader& header) {
  const CallNote mine = comparison_.own_call(header.sequence);
  const CallNote theirs = CallNote::of(header, channel);
  if (mine.sequence_plus_one == theirs.sequence_plus_one) {
    if (!mine.is_as(theirs)) return comparison_.difference(peer, theirs);
    if (in_flight_.find(header.sequence) != nullptr) tell_wait(peer, theirs.urgent);
    return {};
  }
  if (header.sequence >= sequence_) history_.keep_probe(peer, theirs);
  return {};
}

/// So the deadline of `peer`, which may wait for this rank, does not name it where it only waits itself. For
/// the oldest call of a kind all others of it may wait.
void Engine::tell_wait(int peer, bool urgent) {
  const Operation* const oldest = in_flight_.oldest(urgent);
  const auto told = oldest != nullptr ? comparison_.waits(*oldest, peer) : std::nullopt;
  PeerTable& peers = tables_.of(urgent);
  if (told && !peers.has_posted(peer)) peers.post(peer, *told);
}

/// Who has sent what this rank cannot take yet may wait for it: its question lies behind that.
void Engine::tell_who_is_ahead(bool urgent) {
  for (int peer = 0; peer < group_.size(); ++peer) {
    Link* const link =
        peer == group_.rank ? nullptr : transport_->existing_link(peer, tables_.of(urgent).channel());
    auto head = link != nullptr ? link->peek() : nullptr;
    if (head.ok() && *head != nullptr && (*head)->kind == FrameKind::data) tell_wait(peer, urgent);
  }
}

Result<bool> Engine::on_revoke(int peer, const FrameHeader& header, Link& link) {
  if (header.bytes > kMaxReasonBytes)
    return Status(ErrorCode::internal, who(peer) + " sent an oversized reason", peer);
  auto whole = heard_.read(header, link);
  if (!whole.ok() || !*whole) return whole;
  return heard_.get();
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

/// Where the oldest call of either kind, for which all others may wait, has not moved for a while: looks for
/// what peers tell, and asks.
void Engine::ask_around(Nanos now) {
  for (const bool urgent : {true, false}) {
    Operation* const oldest = in_flight_.oldest(urgent);
    if (oldest == nullptr || now - oldest->last_moved < kProbeAfter) continue;
    // A peer that waits for this rank with another call, or has revoked, comes to it.
    if (!listen(now)) return;
    ask_for(*oldest, now);
    if (state() != ErrorCode::ok) return;
  }
}

/// Compares calls with everybody, and tells those who are awaited that they are, and those who may wait for
/// this rank that it waits.
void Engine::ask_for(Operation& operation, Nanos now) {
  if (Status status = domain_ ? comparison_.with_records(operation) : Status(); !status.ok())
    return revoke(status);
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
  PeerTable& peers = tables_.of(operation.urgent);
  for (const int peer : comparison_.peers_awaited(operation)) {
    if (!peers.has_posted(peer)) peers.post(peer, probe);  // One that cannot leave is enough.
  }
  tell_who_is_ahead(operation.urgent);
}

}  // namespace lockstep::internal
