// The short path of a blocking call: attempts in place, before anybody waits. In shared memory the peers are
// most often on time, and a small call ends here.
#include "collectives/engine/engine.hpp"

namespace lockstep::internal {

/// Calls `try_once` until it says that there is nothing left to try, or the peers are late. Who gives others
/// the processor is a waiter: the reactor's thread would otherwise find the lock taken whenever it runs, and
/// come back at each call.
template <class Try>
void Engine::attempt(Try&& try_once) {
  bool yields = wait_policy_.inline_yields, waits = false;
  for (int i = 0; i < wait_policy_.inline_attempts; ++i) {
    if (try_once() || contenders_.load(std::memory_order_relaxed) > 0 || state() != ErrorCode::ok) break;
    if (i == kAttemptsBeforeLook) yields |= shares_processor();
    if (yields && !waits) waits = ++waiters_ > 0;
    relax(yields);
  }
  if (waits) leave_wait();
}

/// A repeated call with nothing else under way does not take the way of operations, unless its peers are
/// late.
bool Engine::may_run_in_place(const Call& call) const {
  return last_in_domain_ != nullptr && last_in_domain_->facts == call.facts && call.counts.empty() &&
         active_.empty() && pending_.empty() && state() == ErrorCode::ok && call.refusal.ok() &&
         probes_kept_ == 0 && call.facts.op != ReduceOp::user && call.facts.op != ReduceOp::premul_sum;
}

// Both return nullptr when the call is done; otherwise the operation that goes on with it, or meets its error
// again.

Operation* Engine::run_inline(const Call& call) {
  const std::uint64_t sequence = sequence_++;
  record_call(sequence, call.facts);
  InlineRun run;
  run.begin(buffers_of(call), combine_of(call), call.facts.count,
            {sequence, fingerprint_of(call.facts, sequence)}, inline_calls_++);
  bool done = false;
  attempt([&] {
    auto progress = run.step(*domain_);
    done = progress.ok() && progress->done;
    return done || !progress.ok();
  });
  if (done) return nullptr;
  Operation& operation = *new_operation(Operation::Kind::collective);
  operation.call = call;
  operation.sequence = sequence;
  operation.path = Operation::Path::inline_line;
  operation.inline_run = run;
  return make_late(operation);
}

Operation* Engine::run_in_domain(const Call& call) {
  Operation& operation = *new_operation(Operation::Kind::collective);
  operation.call = call;
  operation.sequence = sequence_++;
  record_call(operation.sequence, call.facts);
  set_shape(operation);
  launch_domain(operation, last_in_domain_->selection, buffers_of(call), combine_of(call));
  operation.domain_run.enter(position_);
  bool done = false;
  attempt([&] {
    auto progress = operation.domain_run.step(*domain_, programs_);
    done = progress.ok() && progress->done;
    return done || !progress.ok();
  });
  if (!done) return make_late(operation);
  position_ = operation.domain_run.end();
  free_.push_back(&operation);
  return nullptr;
}

Operation* Engine::make_late(Operation& operation) {
  operation.attended = true;
  active_.push_back(&operation);
  in_domain_.push_back(&operation);
  return &operation;
}

Operation* Engine::run_begun(const Call& call) {
  Operation& operation = *new_operation(Operation::Kind::collective);
  operation.attended = true;
  begin(operation, call);
  const auto over = [&] { return operation.done.load(std::memory_order_relaxed); };
  if (over() || operation.path == Operation::Path::links) return &operation;
  attempt([&] {
    advance(operation);
    return over();
  });
  return &operation;
}

}  // namespace lockstep::internal
