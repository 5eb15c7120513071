// Waiting: spin for a moment, yield, sleep; and the reactor's side of it.
#include <sched.h>

#include <algorithm>
#include <new>
#include <optional>

#include "collectives/engine/contender.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/wait_policy.hpp"

namespace lockstep::internal {

/// A thread in wait(), also if it leaves by an exception: with a waiter too many the reactor would do
/// nothing.
class Engine::Waiting {
 public:
  explicit Waiting(Engine& engine) : engine_(engine) { ++engine_.waiters_; }
  ~Waiting() { engine_.leave_wait(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Engine& engine_;
};

bool Engine::wait(Operation& operation, Nanos limit) {
  if (operation.done.load(std::memory_order_acquire)) return true;
  Contender lock(*this);
  const Nanos end = limit == kForever ? kForever : env_.now() + limit;
  operation.attended = true;
  const Waiting waiting(*this);
  Backoff backoff(wait_policy_, env_, yielder_);
  unsigned moves = 0;
  while (!operation.done.load(std::memory_order_relaxed)) {
    if (step_locked()) {
      backoff.reset();
      if (++moves % kMovesPerLook == 0) {
        look_around();
        if (env_.now() >= end) break;
      }
    } else if (backoff.idle(processors_.is_shared()) == Backoff::Advice::sleep) {
      look_around();
      if (operation.done.load(std::memory_order_relaxed)) break;
      const Nanos now = env_.now();
      if (now >= end) break;
      sleep_locked(lock.held(), operation, end == kForever ? kLongestSleep : end - now);
      backoff.woken();
    } else if (end != kForever && env_.now() >= end) {
      break;
    }
    if (contenders_.load(std::memory_order_relaxed) > 0) lock.make_way();
  }
  const bool done = operation.done.load(std::memory_order_relaxed);
  operation.attended = done;
  return done;
}

void Engine::leave_wait() {
  --waiters_;
  take_back_declaration();
  pass_on();
}

/// The reactor's, which found the lock taken.
void Engine::take_back_declaration() {
  if (waiters_ > 0 || !still_declared_) return;
  still_declared_ = false;
  sleeper_->undeclare();
}

/// Leaves what is in flight, and what was asked for meanwhile, to those who still wait, or to the reactor.
void Engine::pass_on() {
  if (sleepers_ > 0) wake_self();
  if (waiters_ == 0 && reactor_ != nullptr && (has_unattended() || requests_.pending())) reactor_->notify();
}

bool Engine::test(Operation& operation) {
  if (operation.done.load(std::memory_order_acquire)) return true;
  Contender lock(*this);
  step_locked();
  return operation.done.load(std::memory_order_relaxed);
}

std::vector<int> Engine::awaited_by(const Operation& operation) {
  Contender lock(*this);
  if (operation.done.load(std::memory_order_relaxed)) return {};
  return comparison_.culprits_awaited(operation);
}

void Engine::sleep_locked(std::unique_lock<std::mutex>& lock, Operation& operation, Nanos limit) {
  if (sleeper_ == nullptr) return;
  const bool held = others_held_;  // What is held is not watched, but looked at again soon.
  const std::optional<bool> in_poll = fall_asleep(false, held);
  if (!in_poll) return;
  // Messages for nobody yet, too: their sender may be who is waited for.
  if (!step_locked() && !take_in() && !operation.done.load(std::memory_order_relaxed)) {
    ++sleepers_;
    lock.unlock();
    sleeper_->sleep(*in_poll, std::min(limit, held ? kUrgentPause : kLongestSleep));
    lock.lock();
    --sleepers_;
  }
  sleeper_->undeclare();
}

/// Whether the sleeper sleeps in poll. Nothing without memory for what it is to watch: it looks again.
std::optional<bool> Engine::fall_asleep(bool for_poll, bool others_held) try {
  if (transport_) static_cast<void>(transport_->service());  // First: a link that it makes is to be watched.
  return sleeper_->declare(for_poll, others_held);
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

void Engine::wake_self() {
  if (sleeper_) sleeper_->wake();
}

bool Engine::has_unattended() const {
  if (state() != ErrorCode::ok) return failing_ || tables_.has_posted();
  const bool collective = std::any_of(in_flight_.active().begin(), in_flight_.active().end(),
                                      [](const Operation* o) { return !o->attended; });
  return collective || !in_flight_.pending().empty() || !in_flight_.messages().empty() || !matcher_.idle() ||
         (transport_ && transport_->unfinished());
}

// ---- the reactor's side ----

Progressor::Outcome Engine::progress() {
  std::unique_lock lock(mutex_, std::defer_lock);
  // Who waits for the lock gets it now: this thread, which comes back at once, would win it every time.
  if (contenders_.load(std::memory_order_relaxed) > 0 || !lock.try_lock()) {
    // A waiter makes progress itself, and notifies when it stops; anybody else lets go of the lock in a
    // moment.
    if (waiters_ > 0) return Outcome::idle;  // And takes back what is still declared, as of disarm().
    sched_yield();
    return Outcome::moved;
  }
  take_back_declaration();
  apply_requests();
  if (waiters_ > 0 || !has_unattended()) return Outcome::idle;
  const bool held = others_held_;
  const bool moved = step_locked() || (others_held_ && !held);  // Nobody looked at those just held.
  look_around();
  if (!has_unattended()) return Outcome::idle;
  return moved ? Outcome::moved : Outcome::stuck;
}

int Engine::arm() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  // Without a descriptor the reactor looks again in a moment. A waiter that came since the reactor's last
  // look may be asleep on the futex: peers that found the reactor's declaration in place of its own would not
  // wake it.
  if (!lock.owns_lock() || others_held_ || waiters_ > 0) return -1;
  still_declared_ = false;
  return fall_asleep(true, false) ? sleeper_->descriptor() : -1;
}

/// Who holds the lock may be in a user's operator, for as long as that takes: whoever lets go of the engine
/// next, progress() or a waiter, takes the declaration back. Until then peers ring in vain.
void Engine::disarm() {
  still_declared_ = true;
  if (std::unique_lock lock(mutex_, std::try_to_lock); lock.owns_lock()) take_back_declaration();
}

}  // namespace lockstep::internal
