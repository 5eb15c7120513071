// Starting operations: validation and order.
#include "collectives/engine/engine.hpp"

#include <algorithm>
#include <set>

#include "collectives/engine/contender.hpp"
#include "collectives/engine/group_hosts.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep::internal {
namespace {

Load load_of(const EngineGroup& group) {
  std::set<std::string> hosts;
  for (const Member& member : group.members) hosts.insert(member.host_id);
  const bool spare =
      std::all_of(hosts.begin(), hosts.end(), [&](const auto& host) { return a_core_each(group, host); });
  return spare ? Load::spare : Load::crowded;
}

}  // namespace

Engine::Engine(EngineGroup group, std::unique_ptr<Transport> transport, Env& env, Reactor* reactor,
               const SharedModel& model, DomainMemory* memory)
    : group_(std::move(group)),
      transport_(std::move(transport)),
      env_(env),
      reactor_(reactor),
      memory_(memory),
      domain_(transport_ ? transport_->domain() : nullptr),
      segment_bytes_(model.segment_bytes > 0 ? model.segment_bytes : kSegmentBytes),
      yielder_(env),
      hand_over_(env),
      peer_probes_(static_cast<std::size_t>(group_.size())),
      out_of_memory_(ErrorCode::out_of_memory, "memory ran out for what it needs beside its buffers",
                     group_.rank),
      lost_(static_cast<std::size_t>(group_.size())),
      links_ended_(static_cast<std::size_t>(group_.size())),
      requested_losses_(static_cast<std::size_t>(group_.size())) {
  capabilities_ = {group_.size(), domain_ != nullptr, inline_bytes(group_.size())};
  hosts_ = hosts_of(group_);
  choices_ = choice_table(model.model,
                          {group_.size(), load_of(group_), segment_bytes_, hosts_,
                           hosts_.empty() ? Network{} : model.network, !transport_ || transport_->streams()});
  if (transport_)
    peers_ = std::make_unique<PeerTable>(*transport_, Channel::collective, group_.size(), group_.rank);
  matcher_ =
      std::make_unique<Matcher>(transport_.get(), *this, group_.size(), group_.rank, memory_ != nullptr);
  active_.reserve(2 * kMaxInFlight);
  in_domain_.reserve(2 * kMaxInFlight);
  late_.reserve(lost_.size());
  wait_policy_ = wait_policy(group_, model.model->spin_microseconds * 1000);
  past_caches_from_ =
      model.model->non_temporal_bytes > 0 ? model.model->non_temporal_bytes : nontemporal_threshold();
  one_process_ = std::all_of(group_.members.begin(), group_.members.end(), [&](const Member& m) {
    return m.process != 0 && m.process == group_.members.front().process;
  });
  if (reactor_ != nullptr) {
    sleeper_ = std::make_unique<Sleeper>(transport_.get(), group_.size(), group_.rank);
    reactor_->add(this);
  }
}

Engine::~Engine() {
  if (reactor_ != nullptr) reactor_->remove(this);
  if (transport_) transport_->close();
}

// ---- operations and their references ----

/// After it so many new operations need no memory.
void Engine::keep_free(std::size_t operations) {
  while (free_.size() < operations) {
    if (free_.capacity() == pool_.size()) {  // To give back, or to list, never fails.
      free_.reserve(2 * pool_.size() + 8);
      messages_.reserve(free_.capacity());
      pending_.reserve(free_.capacity());
    }
    pool_.push_back(std::make_unique<Operation>());
    free_.push_back(pool_.back().get());
  }
}

Operation* Engine::new_operation(Operation::Kind kind) {
  keep_free(1);
  Operation* operation = free_.back();
  free_.pop_back();
  operation->kind = kind;
  operation->path = Operation::Path::none;
  operation->engine = this;
  operation->references = 2;  // The engine's and the caller's.
  operation->started = operation->deadline = operation->probed = operation->last_moved = 0;
  operation->attended = operation->urgent = operation->moved = false;
  operation->status = {};
  operation->done.store(false, std::memory_order_relaxed);
  operation->received = {};
  operation->parent = nullptr;
  operation->children = 0;
  return operation;
}

void Engine::unreference(Operation& operation) {
  if (--operation.references > 0) return;
  for (Scratch* scratch : {&operation.scratch, &operation.scaled}) scratch_.give_back(*scratch);
  free_.push_back(&operation);
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
  unreference(*operation);
}

// ---- public starts ----

Status Engine::run(const Call& call) {
  Contender lock(*this);
  apply_requests();
  Operation* operation = nullptr;
  if (!may_run_in_place(call.facts) || last_->selection.links != nullptr || !call.counts.empty() ||
      !call.refusal.ok()) {
    operation = run_begun(call);
  } else {
    operation = last_->selection.inline_line ? run_inline(call) : run_in_domain(call);
  }
  return finish(operation, lock);
}

Result<RecvStatus> Engine::run(const Message& message) {
  Contender lock(*this);
  apply_requests();
  Operation& operation = *new_operation(Operation::Kind::message);
  operation.attended = true;
  begin(operation, message);
  wait_out(operation, lock);
  Status status = std::move(operation.status);
  const RecvStatus received = operation.received;
  unreference(operation);
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
  while (!active_.empty() || !pending_.empty()) {
    Operation& last = pending_.empty() ? *active_.back() : *pending_.back();
    ++last.references;
    wait_out(last, lock);
    unreference(last);
  }
}

Operation* Engine::start(const Call& call, std::function<void(bool)> on_complete) {
  Contender lock(*this);
  apply_requests();
  Operation& operation = *new_operation(Operation::Kind::collective);
  operation.on_complete = std::move(on_complete);
  begin(operation, call);
  attempt_small(operation);
  return hand_out(operation);
}

Operation* Engine::start(const Message& message) {
  Contender lock(*this);
  apply_requests();
  Operation& operation = *new_operation(Operation::Kind::message);
  begin(operation, message);
  return hand_out(operation);
}

Operation* Engine::start_batch(std::span<const Call> calls, std::span<std::function<void(bool)>> hooks,
                               std::span<const Message> messages) {
  Contender lock(*this);
  apply_requests();
  keep_free(calls.size() + messages.size() + 1);
  Operation& batch = *new_operation(Operation::Kind::batch);
  batch.children =
      calls.size() + messages.size() + 1;  // One for this loop: the batch may not end in the middle of it.
  const auto new_child = [&](Operation::Kind kind) -> Operation& {
    Operation& child = *new_operation(kind);
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
  messages_.push_back(&operation);
  try {
    matcher_->post(operation);
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
  note_call(operation.sequence, operation.call.facts, operation.urgent);
  const bool queued = std::any_of(pending_.begin(), pending_.end(),
                                  [&](const Operation* other) { return other->urgent == operation.urgent; });
  if (has_room_for(operation) && !queued) {
    activate(operation);
  } else {
    pending_.push_back(&operation);
  }
} catch (const std::bad_alloc&) {  // For a refusal's words; peers wait for what has its number.
  revoke_without_memory();
  if (!operation.done.load(std::memory_order_relaxed) && under_way(operation.sequence) == nullptr)
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
  return probes_kept_ > 0 ? compare_with_probes(operation) : Status();
}

/// Peers that already wait for this call have said what it is to them.
Status Engine::compare_with_probes(const Operation& operation) {
  Status status;
  const CallNote mine{operation.sequence + 1, operation.call.facts, operation.urgent};
  for (CallNote& theirs : peer_probes_) {
    if (theirs.sequence_plus_one != mine.sequence_plus_one) continue;
    if (status.ok() && !theirs.is_as(mine)) {
      note_call(operation.sequence, mine.facts, mine.urgent);
      status = explain_mismatch(static_cast<int>(&theirs - peer_probes_.data()), theirs);
    }
    theirs.sequence_plus_one = 0;
    --probes_kept_;
  }
  return status;
}

void Engine::note_call(std::uint64_t sequence, const CallFacts& facts, bool urgent) {
  history_[sequence % kRecentCalls] = {sequence + 1, facts, urgent};
}

/// To the peers. Not before it is under way: what waits for its turn would take the places of calls that are.
void Engine::show_call(std::uint64_t sequence, const CallFacts& facts) {
  static_assert(kRecentCalls >= kMaxInFlight);
  if (domain_ != nullptr)
    domain_->control(group_.rank).recent[sequence % kRecentCalls].write(sequence, facts);
}

/// The links, and the order on them, of urgent calls or of all others.
PeerTable& Engine::peers_of(bool urgent) {
  if (!urgent) return *peers_;
  if (!urgent_peers_)
    urgent_peers_ = std::make_unique<PeerTable>(*transport_, Channel::urgent, group_.size(), group_.rank);
  return *urgent_peers_;
}

void Engine::activate(Operation& operation) {
  const auto place = std::find_if(active_.begin(), active_.end(), [&](const Operation* other) {
    return other->call.priority < operation.call.priority;
  });
  active_.insert(place, &operation);
  ++in_flight_[operation.urgent];
  show_call(operation.sequence, operation.call.facts);
  if (const Status cause = launch(operation); !cause.ok()) {
    complete(operation, failure(operation, cause));
    if (group_.size() > 1) revoke(of_this_rank(cause));
    return;
  }
  advance(operation);
}

void Engine::activate_pending() {
  while (state() == ErrorCode::ok) {
    const auto next = std::find_if(pending_.begin(), pending_.end(),
                                   [this](const Operation* operation) { return has_room_for(*operation); });
    if (next == pending_.end()) return;
    Operation& operation = **next;
    pending_.erase(next);
    activate(operation);
  }
}

}  // namespace lockstep::internal
