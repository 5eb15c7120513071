// Starting operations: validation and order.
#include "collectives/engine/engine.hpp"

#include "collectives/engine/contender.hpp"

namespace lockstep::internal {

Engine::Engine(EngineGroup group, std::unique_ptr<Transport> transport, Env& env, Reactor* reactor,
               const SharedModel& model, DomainMemory* memory)
    : group_(std::move(group)),
      transport_(std::move(transport)),
      env_(env),
      reactor_(reactor),
      memory_(memory),
      domain_(transport_ ? transport_->domain() : nullptr),
      wait_policy_(wait_policy(group_, model.model->spin_microseconds * 1000)),
      yielder_(env),
      hand_over_(env),
      processors_(domain_, group_.rank, group_.size()),
      pool_(*this),
      selector_(group_, transport_.get(), memory_, pool_, model, env_),
      tables_(transport_.get(), group_.size(), group_.rank),
      matcher_(transport_.get(), *this, group_.size(), group_.rank, memory_ != nullptr),
      history_(domain_, group_.rank, group_.size()),
      comparison_(group_, transport_.get(), in_flight_, history_, env_),
      out_of_memory_(ErrorCode::out_of_memory, "memory ran out for what it needs beside its buffers",
                     group_.rank),
      heard_(group_.size()),
      domain_revoke_(domain_, group_.rank, env_),
      lost_(static_cast<std::size_t>(group_.size())),
      links_ended_(static_cast<std::size_t>(group_.size())),
      quiescence_(group_, transport_.get(), memory_, env_, reactor_ != nullptr),
      requests_(group_.size()) {
  if (reactor_ == nullptr) return;
  sleeper_ = std::make_unique<Sleeper>(transport_.get(), group_.size(), group_.rank);
  reactor_->add(this);
}

Engine::~Engine() {
  if (reactor_ != nullptr) reactor_->remove(this);
  if (transport_) transport_->close();
}

// ---- operations and their references ----

/// After it so many new operations need no memory, and find a place in the lists.
void Engine::keep_free(std::size_t operations) {
  if (pool_.free() >= operations) return;
  in_flight_.reserve(pool_.size() + operations);
  pool_.keep_free(operations);
}

Operation& Engine::new_operation(Operation::Kind kind) {
  keep_free(1);
  return pool_.take(kind);
}

/// To the caller, whose handle keeps the engine. Whoever does not wait is served by the reactor.
Operation* Engine::hand_out(Operation& operation) {
  operation.keep = weak_from_this().lock();
  if (!operation.done.load(std::memory_order_relaxed) && reactor_ != nullptr) reactor_->notify();
  return &operation;
}

void Engine::release(Operation* operation) {
  const std::shared_ptr<Engine> keep = std::move(operation->keep);
  Contender lock(*this);
  pool_.unreference(*operation);
}

// ---- public starts ----

Status Engine::run(const Call& call) {
  Contender lock(*this);
  apply_requests();
  Operation* operation = nullptr;
  if (!may_run_in_place(call.facts) || selector_.last().selection.links != nullptr || !call.counts.empty() ||
      !call.refusal.ok()) {
    operation = run_begun(call);
  } else {
    operation = selector_.last().selection.inline_line ? run_inline(call) : run_in_domain(call);
  }
  return finish(operation, lock);
}

Status Engine::run(const Call& call, Nanos often, const std::function<void(const Operation&)>& look) {
  Contender lock(*this);
  apply_requests();
  Operation* const operation = run_begun(call);
  lock.unlock();
  while (!wait(*operation, often)) look(*operation);
  lock.lock();
  return finish(operation, lock);
}

Result<RecvStatus> Engine::run(const Message& message) {
  Contender lock(*this);
  apply_requests();
  Operation& operation = new_operation(Operation::Kind::message);
  operation.attended = true;
  begin(operation, message);
  wait_out(operation, lock);
  Status status = std::move(operation.status);
  const RecvStatus received = operation.received;
  pool_.unreference(operation);
  if (!status.ok()) return status;
  return received;
}

void Engine::wait_out(Operation& operation, Contender& lock) {
  if (operation.done.load(std::memory_order_relaxed)) return;
  lock.unlock();
  wait(operation);
  lock.lock();
}

void Engine::finish_calls() {
  Contender lock(*this);
  while (in_flight_.has_collectives()) {
    Operation& last =
        in_flight_.pending().empty() ? *in_flight_.active().back() : *in_flight_.pending().back();
    ++last.references;
    wait_out(last, lock);
    pool_.unreference(last);
  }
}

Operation* Engine::start(const Call& call, std::function<void(bool)> on_complete) {
  Contender lock(*this);
  apply_requests();
  Operation& operation = new_operation(Operation::Kind::collective);
  operation.on_complete = std::move(on_complete);
  begin(operation, call);
  attempt_small(operation);
  return hand_out(operation);
}

Operation* Engine::start(const Message& message) {
  Contender lock(*this);
  apply_requests();
  Operation& operation = new_operation(Operation::Kind::message);
  begin(operation, message);
  return hand_out(operation);
}

Operation* Engine::start_batch(std::span<const Call> calls, std::span<std::function<void(bool)>> hooks,
                               std::span<const Message> messages) {
  Contender lock(*this);
  apply_requests();
  keep_free(calls.size() + messages.size() + 1);
  Operation& batch = new_operation(Operation::Kind::batch);
  batch.children =
      calls.size() + messages.size() + 1;  // One for this loop: the batch may not end in the middle of it.
  const auto new_child = [&](Operation::Kind kind) -> Operation& {
    Operation& child = new_operation(kind);
    child.parent = &batch;
    child.references = 1;  // The engine's: it has no handle.
    return child;
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Operation& child = new_child(Operation::Kind::collective);
    if (i < hooks.size()) child.on_complete = std::move(hooks[i]);
    begin(child, calls[i]);
  }
  for (const Message& message : messages) {
    begin(new_child(Operation::Kind::message), message);
  }
  if (--batch.children == 0) complete(batch, batch.status);  // Which one of them may have set.
  return hand_out(batch);
}

// ---- from call to running operation ----

void Engine::begin(Operation& operation, const Message& message) {
  operation.message = message;
  if (state() != ErrorCode::ok) return complete(operation, failure(operation, reason_));
  in_flight_.add_message(operation);
  try {
    matcher_.post(operation);
  } catch (const std::bad_alloc&) {
    return revoke_without_memory();
  }
  if (!operation.done.load(std::memory_order_relaxed)) step_messages();
  apply_requests();  // What a peer's last words were.
  // Short messages may all end without a wait that looks around.
  if (++messages_begun_ % kMovesPerLook == 0) listen(env_.now());
}

void Engine::begin(Operation& operation, const Call& call) try {
  operation.call = call;
  if (!call.counts.empty()) keep_counts(operation);
  operation.sequence = sequence_++;
  // In a domain all calls have one order.
  operation.urgent = call.priority > 0 && transport_ != nullptr && domain_ == nullptr;
  if (Status status = admit(operation); !status.ok()) {
    Status failed = failure(operation, status);
    if (group_.size() > 1 && state() == ErrorCode::ok) {
      revoke(Status(ErrorCode::refused,
                    who(group_.rank) + " refused its " + operation.describe() + ": " + status.message(),
                    group_.rank));
    }
    return complete(operation, std::move(failed));
  }
  history_.note(operation.note());
  if (in_flight_.has_room(operation.urgent) && !in_flight_.has_pending(operation.urgent)) {
    activate(operation);
  } else {
    in_flight_.queue(operation);
  }
} catch (const std::bad_alloc&) {  // For a refusal's words; peers wait for what has its number.
  revoke_without_memory();
  if (!operation.done.load(std::memory_order_relaxed) && in_flight_.find(operation.sequence) == nullptr)
    complete(operation, failure(operation, reason_));
}

/// The caller's may be gone when a queued call starts.
void Engine::keep_counts(Operation& operation) try {
  Call& call = operation.call;
  operation.counts.assign(call.counts.begin(), call.counts.end());
  operation.recv_counts.assign(call.recv_counts.begin(), call.recv_counts.end());
  call.counts = operation.counts;
  call.recv_counts = operation.recv_counts;
} catch (const std::bad_alloc&) {
  operation.call.refusal = out_of_memory_;
}

Status Engine::admit(Operation& operation) {
  if (state() != ErrorCode::ok) return reason_;
  if (!operation.call.refusal.ok()) return operation.call.refusal;
  return history_.has_probes() ? compare_with_probes(operation) : Status();
}

/// Peers that already wait for this call have said what it is to them.
Status Engine::compare_with_probes(const Operation& operation) {
  CallNote theirs;
  const auto peer = history_.settle(operation.note(), theirs);
  if (!peer) return {};
  history_.note(operation.note());  // For the words.
  return comparison_.difference(*peer, theirs);
}

void Engine::activate(Operation& operation) {
  in_flight_.start(operation);
  history_.show(operation.sequence, operation.call.facts);
  if (const Status cause = launch(operation); !cause.ok()) {
    complete(operation, failure(operation, cause));
    if (group_.size() > 1) revoke(of_this_rank(cause));
    return;
  }
  advance(operation);
}

void Engine::activate_pending() {
  while (state() == ErrorCode::ok) {
    Operation* const next = in_flight_.take_pending();
    if (next == nullptr) return;
    activate(*next);
  }
}

}  // namespace lockstep::internal
