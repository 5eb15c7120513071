// Revokes: why a communicator dies, what its operations end with, and what the peers are told.
#include <sched.h>

#include <bit>
#include <new>

#include "collectives/engine/contender.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/reason.hpp"

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
  requests_.ask(std::move(why));
  if (!outside_.is_here()) {  // Else its thread looks for itself, once it is back.
    if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) apply_requests();
  }
  wake_self();
  if (reactor_ != nullptr) reactor_->notify();
}

void Engine::on_loss(int rank, const std::string& evidence) {
  requests_.lose(rank);
  request_revoke(
      Status(ErrorCode::peer_lost, words_of([&] { return who(rank) + " is gone: " + evidence; }), rank));
}

void Engine::apply_requests() {
  if (!requests_.take()) return;
  Status why = requests_.standing(lost_);
  if (why.ok()) why = heard_.get();
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
  apply_requests();
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
  if_memory_lasts([&] { domain_revoke_.tell(reason_); });
  if_memory_lasts([&] { tell_peers(); });
  drain();
  if (failing_ && sleepers_ > 0) wake_self();
  if (reactor_ != nullptr) reactor_->notify();
}

void Engine::tell_peers() {
  if (!transport_) return;
  FrameHeader header;
  header.kind = FrameKind::revoke;
  const std::string text = encode_reason(reason_);
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (domain_ != nullptr || lost_[static_cast<std::size_t>(peer)]) continue;  // Told by memory, or gone.
    const bool neighbour = is_neighbour(group_.rank, peer, group_.size());
    const bool linked = transport_->existing_link(peer, Channel::collective) != nullptr;
    if (linked || neighbour) tables_.of(false).post(peer, header, text);
    // What it sent before may stay in front of the word, where the peer waits for another.
    if (transport_->existing_link(peer, Channel::urgent) != nullptr || (linked && neighbour))
      tables_.of(true).post(peer, header, text);
  }
}

void Engine::begin_to_fail() {
  failing_ = true;
  quiescence_.begin();
}

/// Ends all that is under way, but for what peers have not let go of: that is looked at again with the next
/// step, since the thread may be the reactor's, or one that only wants to abort. Whether all has ended.
bool Engine::fail_everything() {
  if (!quiescence_.withdraw(lost_)) return false;
  while (!in_flight_.active().empty()) {
    Operation& operation = *in_flight_.active().front();
    if (operation.path == Operation::Path::links) operation.link_run.abandon(tables_.of(operation.urgent));
    const bool in_domain = operation.path == Operation::Path::domain;
    if (in_domain && !quiescence_.is_quiet(operation)) return false;
    const Status cause = in_domain ? quiescence_.end_of(operation, reason_) : reason_;
    complete(operation, failure(operation, cause));
  }
  in_flight_.leave_domain();
  while (Operation* operation = in_flight_.take_pending()) complete(*operation, failure(*operation, reason_));
  matcher_.abandon();
  while (!in_flight_.messages().empty())
    complete(*in_flight_.messages().front(), failure(*in_flight_.messages().front(), reason_));
  failing_ = false;
  return true;
}

/// After a revoke. Nobody sleeps while something is failing: who lets go of memory rings no bell.
bool Engine::drain() {
  const bool failing = failing_;
  if (failing && !fail_everything()) sched_yield();
  if (!tables_.has_posted()) return failing;
  const bool moved = tables_.flush();
  if (env_.now() > drain_until_) tables_.drop_posted();
  return moved || failing;
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
  tables_.drop_posted();  // A Work may keep this engine, but its links end here.
  if (transport_) transport_->close();
}

bool Engine::left_untold() {
  Contender lock(*this);
  for (int peer = 0; peer < group_.size(); ++peer) {
    if (!lost_[static_cast<std::size_t>(peer)] && tables_.may_have_missed_word(peer)) return true;
  }
  return false;
}

/// A rank that leaves with calls under way ends them everywhere. Its peers cannot end them well, and where
/// they have its offers they would use its buffers, which are the caller's again.
void Engine::give_up_calls() {
  apply_requests();
  if (state() == ErrorCode::ok && domain_ != nullptr) check_domain();
  if (state() != ErrorCode::ok || (!in_flight_.has_collectives())) return;
  const Operation& first =
      in_flight_.active().empty() ? *in_flight_.pending().front() : *in_flight_.active().front();
  const auto words = [&] { return who(group_.rank) + " left with " + first.describe() + " under way"; };
  revoke(Status(ErrorCode::aborted, words_of(words), group_.rank));
}

/// A rank that ends because of a failure is the first that its peers miss: they must have heard why by then.
/// Without the lock in between: the reactor's thread takes it, and makes the links that are still lacking.
void Engine::tell_before_leaving(Contender& lock) {
  const Nanos begin = env_.now();
  while (reactor_ != nullptr && tables_.has_posted()) {
    if (env_.now() - begin >= (tables_.awaits_link() ? kLastLinks : kLastWords)) return;
    if (!tables_.flush()) lock.make_way();
  }
}

}  // namespace lockstep::internal
