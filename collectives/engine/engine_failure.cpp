// Revokes: why a communicator dies, what its operations end with, and what the peers are told.
#include <sched.h>

#include <algorithm>
#include <bit>
#include <new>

#include "collectives/engine/contender.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/reason.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {
namespace {

/// `ended`: the communicator is of no use any more.
const char* next_step(ErrorCode code, bool ended) {
  switch (code) {
    case ErrorCode::mismatch:
      return "make all ranks call the same operations with the same arguments in the same order";
    case ErrorCode::peer_lost:
      return "look at the output of the rank that ended; restart, or go on with a new communicator of the "
             "survivors";
    case ErrorCode::out_of_memory:
      return "give that rank more memory, or call with less at a time on a new communicator";
    case ErrorCode::timeout:
      return "find out why that rank is late, or give the call longer: LOCKSTEP_TIMEOUT, unless it has its "
             "own";
    case ErrorCode::refused:
    case ErrorCode::invalid_argument:
      return ended ? "correct the arguments of that call; this communicator has ended: create a new one"
                   : "correct the arguments of that call";
    default:
      return "end the program, or create a new communicator";
  }
}

/// Does a part of a revoke that what is under way can end without, unless there is no memory for it.
template <class Part>
void if_memory_lasts(Part&& part) try {
  part();
} catch (const std::bad_alloc&) {
}

/// Whether `rank` tells `peer` of a revoke though they have no link yet. All pass it on, so in a large group
/// it reaches everybody by way of distances that are powers of two, and nobody connects to all.
bool is_neighbour(int rank, int peer, int size) {
  const auto up = static_cast<unsigned>((peer - rank + size) % size);
  return size <= kToldDirectly || std::has_single_bit(up) ||
         std::has_single_bit(static_cast<unsigned>(size) - up);
}

}  // namespace

std::string Engine::who(int rank) const {
  return who_is(rank, group_.members[static_cast<std::size_t>(rank)]);
}

/// Without memory for more words the cause must do. A collective that fails ends the communicator, at the
/// latest in a moment; a message may not.
Status Engine::failure(const Operation& operation, const Status& cause) const try {
  if (operation.kind == Operation::Kind::message && operation.message.is_inner) return cause;
  const bool started = operation.path != Operation::Path::none;
  const bool ended =
      state() != ErrorCode::ok || (operation.kind == Operation::Kind::collective && group_.size() > 1);
  std::string text = "lockstep: " + operation.describe() + " failed on rank " + std::to_string(group_.rank) +
                     " of " + std::to_string(group_.size()) + " in group \"" + group_.name +
                     "\"\n  cause : " + cause.message() + "\n  yours : " +
                     (started ? "an input that is not also the output is unchanged; the output is undefined"
                              : "the buffers are unchanged") +
                     "\n  next  : " + next_step(cause.code(), ended);
  return Status(cause.code(), std::move(text), cause.culprit());
} catch (const std::bad_alloc&) {
  return cause;
}

/// What this rank lacks, or did, in words for its peers.
Status Engine::of_this_rank(const Status& cause) const try {
  return Status(cause.code() == ErrorCode::not_supported ? ErrorCode::refused : cause.code(),
                who(group_.rank) + ": " + cause.message(), group_.rank);
} catch (const std::bad_alloc&) {
  return cause;
}

void Engine::revoke_without_memory() { revoke(of_this_rank(out_of_memory_)); }

// ---- requests from other threads ----

void Engine::request_revoke(Status why) {
  {
    std::lock_guard guard(request_mutex_);
    if (requested_.ok()) requested_ = std::move(why);
  }
  has_request_.store(true, std::memory_order_release);
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) apply_requests();
  wake_self();
  if (reactor_ != nullptr) reactor_->notify();
}

void Engine::on_loss(int rank, const std::string& evidence) {
  {
    std::lock_guard guard(request_mutex_);
    requested_losses_[static_cast<std::size_t>(rank)] = true;
  }
  request_revoke(
      Status(ErrorCode::peer_lost, words_of([&] { return who(rank) + " is gone: " + evidence; }), rank));
}

/// What other threads know: who is lost, and why the communicator is to end; ok when nobody asks for it. That
/// stays, since it may explain what a call finds before it is carried out.
Status Engine::requested() {
  std::lock_guard guard(request_mutex_);
  for (std::size_t rank = 0; rank < lost_.size(); ++rank)
    lost_[rank] = lost_[rank] || requested_losses_[rank];
  return requested_;
}

void Engine::apply_requests() {
  if (!has_request_.load(std::memory_order_acquire)) return;
  has_request_.store(false, std::memory_order_relaxed);
  Status why = requested();
  if (why.ok()) why = heard_;
  if (why.ok()) return;
  // A peer that has done its part and gone may be reported before this rank has looked at what it left.
  if (state() == ErrorCode::ok) advance_all();
  if (state() == ErrorCode::ok) revoke(true_cause(why));
}

ErrorCode Engine::poll_state() {
  Contender lock(*this);
  apply_requests();
  listen(env_.now());
  return state();
}

Status Engine::reason() {
  Contender lock(*this);
  return reason_;
}

// ---- the revoke itself ----

/// Comes to its end whatever there is no memory for: nobody would end what it had left. Who is not told finds
/// out by itself.
void Engine::revoke(const Status& why) {
  if (state() != ErrorCode::ok) return;
  reason_ = why;
  state_.store(static_cast<int>(why.code()), std::memory_order_release);
  drain_until_ = env_.now() + kDrainTime;
  begin_to_fail();
  others_held_ = false;
  if_memory_lasts([&] { mark_domain(); });
  if_memory_lasts([&] { tell_peers(); });
  drain();
  if (failing_ && sleepers_ > 0) wake_self();
  if (reactor_ != nullptr) reactor_->notify();
}

/// The first reason in a member's control area wins; a member that sleeps is woken.
void Engine::mark_domain() {
  if (domain_ == nullptr) return;
  const std::string text = encode_reason(reason_);
  for (int member = 0; member < domain_->size(); ++member) {
    MemberControl& control = domain_->control(member);
    std::uint32_t none = 0;
    if (!control.revoked.compare_exchange_strong(none, 1, std::memory_order_seq_cst)) continue;
    std::copy(text.begin(), text.end(), control.reason);
    control.reason[text.size()] = '\0';
    control.revoked.store(2, std::memory_order_seq_cst);
    if (member != group_.rank) domain_->ring(member);
  }
}

void Engine::tell_peers() {
  if (!peers_) return;
  FrameHeader header;
  header.kind = FrameKind::revoke;
  const std::string text = encode_reason(reason_);
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (domain_ != nullptr || lost_[static_cast<std::size_t>(peer)]) continue;  // Told by memory, or gone.
    const bool neighbour = is_neighbour(group_.rank, peer, group_.size());
    const bool linked = transport_->existing_link(peer, Channel::collective) != nullptr;
    if (linked || neighbour) peers_->post(peer, header, text);
    // What it sent before may stay in front of the word, where the peer waits for another.
    if (transport_->existing_link(peer, Channel::urgent) != nullptr || (linked && neighbour))
      peers_of(true).post(peer, header, text);
  }
}

/// Whether links that move data straight from and to the callers' memory have let go of it. What a living
/// peer awaits or sends is over in a moment; one that is lost or stopped is cut off.
/// Peers that have heard of the revoke await and send nothing more, so they are told meanwhile.
bool Engine::withdraw() {
  for (; transport_ && withdrawn_ < group_.size(); ++withdrawn_) {
    if (withdrawn_ == group_.rank) continue;
    const bool force = lost_[static_cast<std::size_t>(withdrawn_)] || env_.now() >= quiet_by_;
    bool free = true;
    if_memory_lasts([&] { free = transport_->withdraw(withdrawn_, force); });
    if (!free) return false;
  }
  return true;
}

void Engine::begin_to_fail() {
  failing_ = true;
  quiet_by_ = env_.now() + kQuiesceWait;
}

/// Ends all that is under way, but for what peers have not let go of: that is looked at again with the next
/// step, since the thread may be the reactor's, or one that only wants to abort. Whether all has ended.
bool Engine::fail_everything() {
  if (!withdraw()) return false;
  while (!active_.empty()) {
    Operation& operation = *active_.front();
    if (operation.path == Operation::Path::links) operation.link_run.abandon(peers_of(operation.urgent));
    if (operation.path == Operation::Path::domain && !is_quiet(operation)) return false;
    const Status cause = operation.path == Operation::Path::domain ? quiesced(operation) : reason_;
    complete(operation, failure(operation, cause));
  }
  in_domain_.clear();
  while (!pending_.empty()) {
    Operation* operation = pending_.front();
    pending_.erase(pending_.begin());
    complete(*operation, failure(*operation, reason_));
  }
  matcher_->abandon();
  while (!messages_.empty()) complete(*messages_.front(), failure(*messages_.front(), reason_));
  failing_ = false;
  return true;
}

bool Engine::is_of_this_process(int member) const {
  return group_.members[static_cast<std::size_t>(member)].process == process_token();
}

/// After this no peer writes to this rank's memory any more, not even one that was stopped and resumes.
/// A peer uses it only when it has seen this rank's offer and everybody's, has then raised `in_use`, and has
/// then found its own `revoked` down. All `revoked` are up by now (mark_domain). Of these stores and loads
/// all ranks see one order: either the peer's declaration came before its mark, and is seen here until it has
/// stopped; or the peer finds its mark and touches nothing. Whether this rank has seen the other offers
/// itself does not matter, so it is exposed from its own on (tests/model/revoke.pml). Another process whose
/// declaration stays up has ended, or finds the output no longer its own; what it reads, it takes for no
/// result. That it was reported lost says nothing: it may only have lost its connection to the job. A thread
/// of this process cannot be kept from anything, and is never stopped alone: it is awaited to the end of its
/// block, or of the user's operator where its algorithm was insisted on.
bool Engine::is_quiet(Operation& operation) {
  if (!exposure_) exposure_ = operation.domain_run.exposure();
  operation.domain_run.abandon(*domain_);
  if (reactor_ == nullptr) return true;
  for (int member = 0; member < domain_->size(); ++member) {
    if (is_awaited(member) && is_used_by(member) && (is_thread(member) || env_.now() < quiet_by_))
      return false;
  }
  return true;
}

/// Whether what `member` does counts, of an operation that is exposed as exposure_ says.
bool Engine::is_awaited(int member) const {
  return exposure_ == Exposure::to_writers || (exposure_ == Exposure::to_readers && is_thread(member));
}

/// On a device kernels look at the revoke themselves before they write.
bool Engine::is_thread(int member) const { return memory_ == nullptr && is_of_this_process(member); }

bool Engine::is_used_by(int member) const {
  return domain_->control(member).in_use.load(std::memory_order_seq_cst) != 0 &&
         !has_ended(group_.members[static_cast<std::size_t>(member)]);
}

/// Of an operation that is quiet, or where that was awaited long enough: the reason, and what else the caller
/// must know.
Status Engine::quiesced(const Operation& operation) {
  bool others_are_quiet = true;
  for (int member = 0; reactor_ != nullptr && member < domain_->size(); ++member)
    others_are_quiet &= !is_awaited(member) || is_thread(member) || !is_used_by(member);
  exposure_.reset();
  const std::size_t bytes = operation.call.output_elements * size_of(operation.call.facts.type);
  if (others_are_quiet || memory_ != nullptr || bytes == 0) return reason_;
  return take_from_peers(operation.call.output, bytes);
}

/// The reason, and whether peers may still write to the output.
Status Engine::take_from_peers(void* output, std::size_t bytes) const try {
  const Status taken = make_private(output, bytes);
  if (taken.ok()) return reason_;
  return Status(reason_.code(),
                reason_.message() +
                    "; a peer that does not answer may still write to the output, which could not "
                    "be taken from it: " +
                    taken.message(),
                reason_.culprit());
} catch (const std::bad_alloc&) {
  return reason_;
}

/// After a revoke. Nobody sleeps while something is failing: who lets go of memory rings no bell.
bool Engine::drain() {
  const bool failing = failing_;
  if (failing && !fail_everything()) sched_yield();
  if (!has_posted()) return failing;
  const bool moved = flush_posted();
  if (env_.now() > drain_until_) drop_posted();
  return moved || failing;
}

void Engine::drop_posted() {
  if (peers_) peers_->drop_posted();
  if (urgent_peers_) urgent_peers_->drop_posted();
}

bool Engine::has_posted() const {
  return (peers_ && peers_->has_posted()) || (urgent_peers_ && urgent_peers_->has_posted());
}

/// Whether what is posted has yet to get a link.
bool Engine::awaits_links() const {
  return (peers_ && peers_->awaits_link()) || (urgent_peers_ && urgent_peers_->awaits_link());
}

/// What there is no memory for stays posted.
bool Engine::flush_posted() try {
  const bool moved = peers_->flush();
  return (urgent_peers_ && urgent_peers_->flush()) || moved;
} catch (const std::bad_alloc&) {
  return false;
}

void Engine::close() {
  Contender lock(*this);
  if (closed_) return;
  closed_ = true;
  give_up_calls();
  if (state() == ErrorCode::ok) {
    reason_ =
        Status(ErrorCode::aborted, words_of([] { return "the communicator was finalized on this rank"; }));
    state_.store(static_cast<int>(ErrorCode::aborted), std::memory_order_release);
    begin_to_fail();
  }
  while (failing_) {
    drain();
    lock.make_way();
  }
  if (domain_ != nullptr) {
    domain_->control(group_.rank).left.store(sequence_ + 1, std::memory_order_release);
    domain_->ring_sleepers();
  }
  tell_before_leaving(lock);
  drop_posted();  // A Work may keep this engine, but its links end here.
  if (transport_) transport_->close();
}

bool Engine::left_untold() {
  Contender lock(*this);
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (!lost_[static_cast<std::size_t>(peer)] && may_have_missed_word(peer)) return true;
  }
  return false;
}

/// A word on the link for collectives may stay behind what was sent before and the peer never takes. That is
/// what the one on the urgent link is for: it is missed where there was no time for it.
bool Engine::may_have_missed_word(int peer) const {
  const auto in_either = [this](auto&& holds) {
    return (peers_ && holds(*peers_)) || (urgent_peers_ && holds(*urgent_peers_));
  };
  const bool missed = in_either([peer](const PeerTable& table) { return table.has_missed(peer); });
  const bool heard = in_either([peer](const PeerTable& table) { return table.needs_no_word(peer); });
  return (missed && !heard) || (urgent_peers_ && urgent_peers_->was_late(peer));
}

/// A rank that leaves with calls under way ends them everywhere. Its peers cannot end them well, and where
/// they have its offers they would use its buffers, which are the caller's again.
void Engine::give_up_calls() {
  apply_requests();
  if (state() == ErrorCode::ok && domain_ != nullptr) check_domain();
  if (state() != ErrorCode::ok || (active_.empty() && pending_.empty())) return;
  const Operation& first = active_.empty() ? *pending_.front() : *active_.front();
  const auto words = [&] { return who(group_.rank) + " left with " + first.describe() + " under way"; };
  revoke(Status(ErrorCode::aborted, words_of(words), group_.rank));
}

/// A rank that ends because of a failure is the first that its peers miss: they must have heard why by then.
/// Without the lock in between: the reactor's thread takes it, and makes the links that are still lacking.
void Engine::tell_before_leaving(Contender& lock) {
  const Nanos begin = env_.now();
  while (reactor_ != nullptr && has_posted()) {
    if (env_.now() - begin >= (awaits_links() ? kLastLinks : kLastWords)) return;
    if (!flush_posted()) lock.make_way();
  }
}

}  // namespace lockstep::internal
