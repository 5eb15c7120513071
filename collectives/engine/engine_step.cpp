// One pass over what is in flight.
#include <sched.h>

#include <algorithm>
#include <new>
#include <utility>

#include "collectives/engine/contender.hpp"
#include "collectives/engine/engine.hpp"

namespace lockstep::internal {
bool Engine::step() {
  Contender lock(*this);
  const bool moved = step_locked();
  look_around();
  return moved;
}

bool Engine::step_locked() {
  apply_requests();
  if (state() != ErrorCode::ok) return drain();
  bool moved = advance_urgent_first();
  if (state() != ErrorCode::ok) return true;  // A failure ended everything.
  moved |= step_messages();
  apply_requests();  // What a peer's last words were.
  if (state() != ErrorCode::ok) return true;
  if (tables_.has_posted()) moved |= tables_.flush();
  if (!in_flight_.pending().empty()) activate_pending();
  if (!moved && domain_ != nullptr && heed_domain()) return true;
  return moved;
}

/// Memory that runs out ends everything here, as with calls: a message may be half received.
bool Engine::step_messages() try { return matcher_.step(); } catch (const std::bad_alloc&) {
  revoke_without_memory();
  return true;
}

/// As with step_messages().
bool Engine::take_in() try { return matcher_.take_in(); } catch (const std::bad_alloc&) {
  revoke_without_memory();
  return true;
}

bool Engine::advance_all() {
  std::size_t next = 0;
  return advance_each(next, [](const Operation&) { return true; });
}

/// Moves active calls from number `next` on while they are `wanted`; `next` is then the first that is not.
template <class Wanted>
bool Engine::advance_each(std::size_t& next, Wanted wanted) {
  bool moved = false;
  while (next < in_flight_.active().size() && wanted(*in_flight_.active()[next]) &&
         state() == ErrorCode::ok) {
    Operation* operation = in_flight_.active()[next];
    moved |= advance(*operation);
    if (next < in_flight_.active().size() && in_flight_.active()[next] == operation) ++next;
  }
  return moved;
}

/// Others are held while urgent calls move, and for a moment after: a link that both used would be shared
/// evenly. When urgent ones wait, be it for a peer that has yet to end other calls, the others go on.
bool Engine::advance_urgent_first() {
  others_held_ = false;
  if (in_flight_.running(true) == 0) return advance_all();
  std::size_t next = 0;
  const bool moved = advance_each(next, [](const Operation& operation) { return operation.urgent; });
  if (state() != ErrorCode::ok) return moved;
  const Nanos now = env_.now();
  if (moved) urgent_moved_ = now;
  others_held_ =
      in_flight_.running(true) > 0 && in_flight_.running(false) > 0 && now < urgent_moved_ + kUrgentPause;
  if (others_held_) return moved;
  return advance_each(next, [](const Operation&) { return true; }) || moved;
}

/// Moves one collective; ends it when it is done or failed.
bool Engine::advance(Operation& operation) try {
  auto progress = advance_run(operation);
  if (!progress.ok()) {
    if (domain_ != nullptr && check_domain()) return true;  // A peer's reason came first.
    if (awaits_word(progress.status())) return false;
    Status cause = true_cause(progress.status());
    // Without words, but with a name: of a run that found another fingerprint.
    if (cause.code() == ErrorCode::mismatch && cause.message().empty() && domain_ != nullptr &&
        cause.culprit() >= 0) {
      const auto explained = comparison_.with_fingerprint(cause.culprit(), operation);
      if (!explained) {
        sched_yield();
        return true;  // To look again soon, not to sleep.
      }
      cause = *explained;
    }
    // A peer's words may be of what that one lacks, and name nobody whom this group has.
    const bool is_lack_here = heard_.get().ok() && progress.status().is_of_this_process();
    revoke(is_lack_here || cause.culprit() == group_.rank ? of_this_rank(cause) : cause);
    return true;
  }
  operation.moved |= progress->moved;
  if (progress->done) complete(operation, {});
  return progress->moved || progress->done;
} catch (const std::bad_alloc&) {  // For the words of another failure.
  revoke_without_memory();
  return true;
}

/// A user's operator may throw, and memory may run out: either ends its operation like any other error.
Result<RunProgress> Engine::advance_run(Operation& operation) {
  try {
    const OutsideCode::Call operators(outside_, operation.call.facts.op == ReduceOp::user);
    if (!operation.scaling.advance()) return RunProgress{.moved = true};
    switch (operation.path) {
      case Operation::Path::links:
        return operation.link_run.step(tables_.of(operation.urgent), *this,
                                       in_flight_.running(operation.urgent) == 1);
      case Operation::Path::domain:
        if (!in_flight_.is_front_of_domain(operation)) return RunProgress{};
        if (!operation.domain_run.entered()) operation.domain_run.enter(position_);
        return operation.domain_run.step(*domain_, programs_);
      case Operation::Path::inline_line:
        if (!in_flight_.is_front_of_domain(operation)) return RunProgress{};
        return operation.inline_run.step(*domain_);
      case Operation::Path::local:
        return RunProgress{true, true};
      case Operation::Path::none:
        break;
    }
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  } catch (const std::exception& error) {
    return Status(ErrorCode::aborted, "the user's operator threw: " + std::string(error.what()), group_.rank);
  } catch (...) {
    return Status(ErrorCode::aborted, "the user's operator threw what is no std::exception", group_.rank);
  }
  return RunProgress{};
}

/// Makes way for the collectives behind it.
void Engine::retire(Operation& operation, bool good) {
  if (!in_flight_.retire(operation)) return;
  if (operation.path == Operation::Path::domain && good) position_ = operation.domain_run.end();
}

void Engine::wake_for_end() {
  if (sleepers_ > 0) wake_self();
  // Over here, but what is for its peers may not have left: the caller may have looked for the last time.
  if (waiters_ == 0 && reactor_ != nullptr && transport_ && (matcher_.owes() || transport_->unfinished()))
    reactor_->notify();
}

void Engine::complete(Operation& operation, Status status) {
  if (operation.kind == Operation::Kind::collective) retire(operation, status.ok());
  if (operation.kind == Operation::Kind::message) {
    in_flight_.remove_message(operation);
    if (!status.ok() && status.message().find("lockstep:") != 0) status = failure(operation, status);
  }
  operation.status = std::move(status);
  if (operation.on_complete) {
    const auto hook = std::move(operation.on_complete);
    operation.on_complete = nullptr;
    const OutsideCode::Call call(outside_);
    hook(operation.status.ok());
  }
  Operation* parent = operation.parent;
  if (parent != nullptr && !operation.status.ok() && parent->status.ok()) parent->status = operation.status;
  operation.done.store(true, std::memory_order_release);
  wake_for_end();
  pool_.unreference(operation);
  if (parent != nullptr && --parent->children == 0) complete(*parent, parent->status);
}

/// Where it does not, that is the end of everything. `next`: when to look again.
bool Engine::keeps_deadline(Operation& operation, Nanos timeout, Nanos now, Nanos& next) {
  if (operation.started == 0) {
    operation.started = now;
    operation.deadline = timeout > 0 ? now + timeout : 0;
  }
  if (operation.deadline == 0) return true;
  next = std::min(next, operation.deadline);
  if (now < operation.deadline) return true;
  revoke(Status(ErrorCode::timeout, "the deadline of " + std::to_string(timeout / 1'000'000) + " ms for " +
                                        operation.describe() + " passed; " +
                                        comparison_.waiting_text(operation, sequence_)));
  return false;
}

/// The slow path's look at the clock: deadlines, and questions to peers when nothing moves.
void Engine::look_around() try {
  if (state() != ErrorCode::ok) return;
  const Nanos now = env_.now();
  Nanos next = now + kProbeAfter;
  if (others_held_) next = std::min(next, urgent_moved_ + kUrgentPause);
  for (Operation* operation : in_flight_.active()) {
    if (!keeps_deadline(*operation, operation->call.timeout, now, next)) return;
    if (std::exchange(operation->moved, false) || operation->last_moved == 0) operation->last_moved = now;
  }
  for (Operation* operation : in_flight_.pending()) {
    if (!keeps_deadline(*operation, operation->call.timeout, now, next)) return;
  }
  for (Operation* operation : in_flight_.messages()) {
    if (!keeps_deadline(*operation, operation->message.timeout, now, next)) return;
  }
  if (in_flight_.active().empty() && in_flight_.messages().empty()) return;
  take_in();  // Whose senders may be what is waited for.
  if (state() != ErrorCode::ok || (!in_flight_.messages().empty() && !listen(now))) return;
  ask_around(now);
  env_.wake_at(next);
} catch (const std::bad_alloc&) {  // The reactor's thread has nobody to tell.
  revoke_without_memory();
}

}  // namespace lockstep::internal
