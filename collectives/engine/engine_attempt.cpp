// The short path of blocking and of small calls: attempts in place, before anybody waits. In shared memory
// the peers are most often on time, and a small call ends here.
#include <new>
#include <utility>

#include "collectives/engine/contender.hpp"
#include "collectives/engine/engine.hpp"

namespace lockstep::internal {
namespace {

/// Not null, aligned for any type, apart or the same where that is in place: nothing that needs a closer
/// look.
bool are_plain(const CallFacts& facts, const BufferElements& elements, const void* input,
               const void* output) {
  constexpr std::uintptr_t kAligned = 8;
  const auto in = reinterpret_cast<std::uintptr_t>(input), out = reinterpret_cast<std::uintptr_t>(output);
  if ((in == 0 && elements.input > 0) || (out == 0 && elements.output > 0) || (in | out) % kAligned != 0)
    return false;
  const bool same = facts.collective == Collective::all_reduce || facts.collective == Collective::broadcast ||
                    facts.collective == Collective::reduce;
  const std::size_t size = size_of(facts.type);
  return (in == out && same) || in + elements.input * size <= out || out + elements.output * size <= in;
}

}  // namespace

/// Calls `try_once` until it says that there is nothing left to try, or the peers are late; `run` is what it
/// tries, where that has steps. Who gives others the processor is a waiter: the reactor's thread would
/// otherwise find the lock taken whenever it runs, and come back at each call.
template <class Try>
void Engine::attempt(Try&& try_once, const DomainRun* run) {
  bool shares = wait_policy_.inline_yields, waits = false;
  for (int pauses = 0, yields = 0, blocks = 0; pauses < kInlinePauses && yields < kInlineYields;) {
    if (try_once() || contenders_.load(std::memory_order_relaxed) > 0 || state() != ErrorCode::ok) break;
    if (requests_.pending()) break;
    if (run != nullptr && run->has_work()) {
      if (++blocks < kBlocksInPlace) continue;
      break;
    }
    if (!shares && pauses == kPausesBeforeLook) shares = processors_.is_shared();
    const bool yield = shares && (pauses >= kKeptPauses || !processors_.may_be_kept(run));
    if (yield && yielder_.prefers_sleep()) break;
    if (yield && !waits) waits = ++waiters_ > 0;
    ++(yield ? yields : pauses);
    if (yield) {
      yielder_.yield();
    } else {
      relax();
    }
  }
  if (waits) leave_wait();
}

/// The first try tells the peers of the call, which is recorded while their answer is on its way: until then
/// a peer that finds the fingerprints different could not say what was called here instead.
template <class Try>
void Engine::attempt_recorded(std::uint64_t sequence, const CallFacts& facts, Try&& try_once,
                              const DomainRun* run) {
  const bool over = try_once();
  history_.note({sequence + 1, facts});
  history_.show(sequence, facts);
  if (!over) attempt(try_once, run);
}

/// A repeated call with nothing else under way does not take the way of operations, unless its peers are
/// late, or a device runs it: attempts in place are for what a core does at once.
bool Engine::may_run_in_place(const CallFacts& facts) {
  return memory_ == nullptr && !in_flight_.has_collectives() && state() == ErrorCode::ok &&
         !history_.has_probes() && facts.op != ReduceOp::user && facts.op != ReduceOp::premul_sum &&
         selector_.recall(facts);
}

std::optional<Status> Engine::run_again(const CallFacts& facts, const void* input, void* output,
                                        const CallOptions& options) {
  Contender lock(*this);
  apply_requests();
  if (!may_run_in_place(facts) || !options.algorithm.empty()) return std::nullopt;
  const BufferElements elements = buffer_elements(facts, group_.rank, group_.size());
  if (!are_plain(facts, elements, input, output)) return std::nullopt;
  if (selector_.last().repeatable != nullptr)
    return finish(run_in_domain_again(input, output, options), lock);
  const Selection& selection = selector_.last().selection;
  InlineRun run;
  if (selection.inline_line && end_inline({facts, input, output}, run)) return Status();
  Call call;
  call.facts = facts;
  call.input = input;
  call.output = output;
  call.input_elements = elements.input;
  call.output_elements = elements.output;
  call.timeout = timeout_of(options);
  call.priority = options.priority;
  return finish(selection.links != nullptr ? run_begun(call)
                : selection.inline_line    ? make_late_inline(call, run)
                                           : run_in_domain(call),
                lock);
}

/// What is left of a call after its attempts: null, it is done.
Status Engine::finish(Operation* operation, Contender& lock) {
  if (operation == nullptr) return {};
  wait_out(*operation, lock);
  Status status = std::move(operation->status);
  pool_.unreference(*operation);
  return status;
}

/// Whether it ended here.
bool Engine::end_inline(const InlineCall& call, InlineRun& run) {
  keep_free(1);  // For a call that turns out late, when the peers have heard of it.
  const std::uint64_t sequence = sequence_++;
  run.begin(call, fingerprint_of(selector_.last().hash, sequence), inline_calls_++);
  bool done = false;
  attempt_recorded(sequence, call.facts, [&] {
    auto progress = run.step(*domain_);
    done = progress.ok() && progress->done;
    return done || !progress.ok();
  });
  return done;
}

// The following return nullptr when the call is done; otherwise the operation that goes on with it, or meets
// its error again.

Operation* Engine::run_inline(const Call& call) {
  InlineRun run;
  return end_inline({call.facts, call.input, call.output}, run) ? nullptr : make_late_inline(call, run);
}

Operation* Engine::make_late_inline(const Call& call, const InlineRun& run) {
  Operation& operation = new_operation(Operation::Kind::collective);
  operation.call = call;
  operation.sequence = sequence_ - 1;
  operation.path = Operation::Path::inline_line;
  operation.inline_run = run;
  return make_late(operation);
}

Operation* Engine::run_in_domain(const Call& call) {
  Operation& operation = new_operation(Operation::Kind::collective);
  operation.call = call;
  operation.sequence = sequence_++;
  selector_.set_shape(operation);
  const KnownCall& known = selector_.last();
  launch_domain(operation, known.selection, known.hash, buffers_of(call), combine_of(call));
  return attempt_in_domain(operation);
}

/// All but the buffers, the place in the order, deadline and priority is as the last such call left it.
Operation* Engine::run_in_domain_again(const void* input, void* output, const CallOptions& options) {
  KnownCall& known = selector_.last();
  Operation& operation = *std::exchange(known.repeatable, nullptr);
  Call& call = operation.call;
  call.input = input;
  call.output = output;
  call.timeout = timeout_of(options);
  call.priority = options.priority;
  operation.sequence = sequence_++;
  operation.domain_run.begin_again(input, output,
                                   {operation.sequence, fingerprint_of(known.hash, operation.sequence)},
                                   selector_.offers_of(call, known.selection, input));
  return attempt_in_domain(operation);
}

Operation* Engine::attempt_in_domain(Operation& operation) {
  operation.domain_run.enter(position_);
  bool done = false;
  const auto try_once = [&] {
    try {
      auto progress = operation.domain_run.step(*domain_, programs_);
      done = progress.ok() && progress->done;
      return done || !progress.ok();
    } catch (const std::bad_alloc&) {
      return true;  // Met again, if it lasts.
    }
  };
  attempt_recorded(operation.sequence, operation.call.facts, try_once, &operation.domain_run);
  if (!done) return make_late(operation);
  position_ = operation.domain_run.end();
  keep_for_next(operation);
  return nullptr;
}

/// Unless its program is long: such a call takes long itself, and many would hold much memory.
void Engine::keep_for_next(Operation& operation) {
  Operation* spare = &operation;
  if (operation.domain_run.program_bytes() <= kKeptProgramBytes)
    std::swap(spare, selector_.last().repeatable);
  if (spare != nullptr) pool_.give_back(*spare);
}

Operation* Engine::make_late(Operation& operation) {
  operation.attended = true;
  in_flight_.start(operation);
  in_flight_.enter_domain(operation);
  return &operation;
}

Operation* Engine::run_begun(const Call& call) {
  Operation& operation = new_operation(Operation::Kind::collective);
  operation.attended = true;
  begin(operation, call);
  const auto over = [&] { return operation.done.load(std::memory_order_relaxed); };
  if (over() || operation.path == Operation::Path::links) return &operation;
  const auto advance_once = [&] {
    advance(operation);
    return over();
  };
  attempt(advance_once, operation.path == Operation::Path::domain ? &operation.domain_run : nullptr);
  return &operation;
}

/// Of a call that was only started: one that is over in a moment is over before the reactor's thread is woken
/// for it. Not where peers need this processor, or earlier calls wait for them.
void Engine::attempt_small(Operation& operation) {
  if (domain_ == nullptr || memory_ != nullptr || wait_policy_.inline_yields) return;
  if (operation.bytes() > kBytesInPlace) return;
  const auto may_go_on = [&] {
    return !operation.done.load(std::memory_order_relaxed) && in_flight_.is_front_of_domain(operation) &&
           contenders_.load(std::memory_order_relaxed) == 0 && state() == ErrorCode::ok;
  };
  for (int pauses = 0; pauses < kInlinePauses && may_go_on(); ++pauses) {
    relax();
    advance(operation);
  }
}

}  // namespace lockstep::internal
