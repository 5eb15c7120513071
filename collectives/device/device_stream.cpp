// Modes stream_sync and device_sync: what the caller's stream runs itself, and what the worker does about it.
#include <sched.h>

#include <array>
#include <bit>

#include "collectives/device/device_core.hpp"
#include "collectives/device/message_plan.hpp"
#include "collectives/device/patience.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

/// Calls on streams have records of their own beside those of the engine.
constexpr std::uint64_t kFirstSequence = std::uint64_t{1} << 40;

/// The calls differ in nothing but where their buffers lie.
bool is_elsewhere(CallFacts theirs, CallFacts mine, const CallFacts& call) {
  const bool counted = call.extra != 0;  // v-variants: their counts may be what differs.
  theirs.extra = mine.extra = 0;
  return !counted && theirs == mine;
}

/// What has to do with `peer`, where it is known who is waited for.
std::string name_of(const DeviceTask& task, int peer = -1) {
  return task.call ? internal::describe(task.call->call().facts) : internal::describe(task.messages, peer);
}

}  // namespace

bool DeviceCore::runs_on_stream(const DeviceTask& task) {
  if (runner_ == nullptr) return false;
  const bool messages = !task.call || passes_as_messages(task.call->call().facts.collective);
  return !messages || (carrier_ != nullptr && (task.call || !task.messages.empty()));
}

/// Operations on different streams run in the order of the calls all the same.
Status DeviceCore::follow_last(DeviceStream stream) {
  if (runner_ == nullptr || last_end_ == nullptr) return {};
  const auto number = backend_.stream_number(stream);
  if (!number.ok()) return number.status();
  return number.value() == last_stream_ ? Status() : backend_.wait_event(stream, last_end_);
}

Status DeviceCore::note_last(DeviceStream stream) {
  if (runner_ == nullptr) return {};
  if (last_end_ == nullptr) {
    auto event = backend_.create_event();
    if (!event.ok()) return event.status();
    last_end_ = *event;
  }
  const auto number = backend_.stream_number(stream);
  if (!number.ok()) return number.status();
  last_stream_ = number.value();
  return backend_.record(last_end_, stream);
}

/// The first of the streams runs it; the others wait for that. The worker has it before anything of it is
/// enqueued, so that it is bounded as long as that takes; and lets go of the hold at its end.
Status DeviceCore::start_on_stream(const std::shared_ptr<DeviceTask>& task,
                                   std::span<const DeviceStream> streams, bool captured) {
  if (captured) return record_in_graph(*task, streams);
  LOCKSTEP_RETURN_IF_ERROR(prepare_watch(*task, streams));
  held_.hold();
  worker_->push(task);
  Status status = enqueue_watched(*task, streams);
  WatchedCall& watched = *task->watched;
  watched.refusal = status;
  watched.stage.store(status.ok() ? WatchedCall::Stage::enqueued : WatchedCall::Stage::refused,
                      std::memory_order_release);
  return status.ok() ? status : status.with_context("lockstep: " + name_of(*task));
}

Status DeviceCore::prepare_watch(DeviceTask& task, std::span<const DeviceStream> streams) {
  LOCKSTEP_RETURN_IF_ERROR(follow_last(streams.front()));
  LOCKSTEP_RETURN_IF_ERROR(join(task, streams));
  auto begin = event_of(task), end = event_of(task);
  if (!begin.ok() || !end.ok()) return begin.ok() ? end.status() : begin.status();
  LOCKSTEP_RETURN_IF_ERROR(backend_.record(*begin, streams.front()));
  auto watched = std::make_unique<WatchedCall>();
  watched->begin = *begin;
  watched->end = *end;
  if (task.call) {
    watched->sequence = kFirstSequence + stream_calls_++;
    watched->facts = recorded_facts(task.call->call());
    watched->history = note_call(watched->sequence, watched->facts);
  }
  task.watched = std::move(watched);
  return {};
}

/// The end is noted also where only some of it is enqueued.
Status DeviceCore::enqueue_watched(DeviceTask& task, std::span<const DeviceStream> streams) {
  const DeviceStream stream = streams.front();
  Status status = run_in_stream(*runner_, task, stream);
  Status ended = backend_.record(task.watched->end, stream);
  LOCKSTEP_RETURN_IF_ERROR(status);
  LOCKSTEP_RETURN_IF_ERROR(ended);
  for (const DeviceStream other : streams.subspan(1))
    LOCKSTEP_RETURN_IF_ERROR(backend_.wait_event(other, task.watched->end));
  return note_last(stream);
}

/// The first stream goes on when the others have come here.
Status DeviceCore::join(DeviceTask& task, std::span<const DeviceStream> streams) {
  for (const DeviceStream other : streams.subspan(1)) {
    auto here = event_of(task);
    if (!here.ok()) return here.status();
    LOCKSTEP_RETURN_IF_ERROR(backend_.record(*here, other));
    LOCKSTEP_RETURN_IF_ERROR(backend_.wait_event(streams.front(), *here));
  }
  return {};
}

Status DeviceCore::run_in_stream(CallRunner& runner, const DeviceTask& task, DeviceStream stream) {
  if (!task.call) return carrier_->enqueue(task.messages, task.timeout, stream);
  const Call& call = task.call->call();
  if (passes_as_messages(call.facts.collective))
    return carrier_->enqueue(messages_of(call, control_->rank(), control_->size()), call.timeout, stream);
  if (task.copy_from != nullptr && call.output_elements > 0)
    LOCKSTEP_RETURN_IF_ERROR(
        backend_.copy(call.output, task.copy_from, call.output_elements * size_of(call.facts.type), stream));
  return runner.enqueue(call, stream);
}

/// No event and no task: the call runs when the graph does, and as often. Its kernels have their own
/// deadline; the worker looks from time to time whether the group ended.
Status DeviceCore::record_in_graph(DeviceTask& task, std::span<const DeviceStream> streams) {
  if (streams.size() > 1)
    return Status(
        ErrorCode::not_supported,
        "a batch of messages that is captured in a graph names one stream: others are joined to it by "
        "events of the caller");
  if (task.call) note_call(kFirstSequence + stream_calls_++, recorded_facts(task.call->call()));
  LOCKSTEP_RETURN_IF_ERROR(run_in_stream(*capturer_, task, streams.front()));
  task.recorded = true;
  if (!recorded_.exchange(true)) worker_->look_when_idle();
  return {};
}

void DeviceCore::look_after_graphs() {
  heed_leavers();
  if (known_state().ok()) return;
  const BesideCaptures beside(backend_);
  close();
  static_cast<void>(capturer_->let_pass(stream_));
}

/// Ranks that name other places of their windows would read and write each other's wrong memory.
CallFacts DeviceCore::recorded_facts(const Call& call) const {
  CallFacts facts = call.facts;
  if (const auto use = windows_.find(call)) facts.extra = hash_combine(facts.extra, use->places);
  return facts;
}

/// With a hash of the calls before, which it gives: what differs is found also when callers are so far ahead
/// of their streams that its record is gone.
std::uint64_t DeviceCore::note_call(std::uint64_t sequence, const CallFacts& facts) {
  const std::uint64_t before = history_;
  if (MemberControl* const own = told_by(control_->rank())) {
    const std::uint64_t place = sequence % kRecentCalls;
    own->recent[place].clear();
    own->before[place].store(before, std::memory_order_release);
    own->recent[place].write(sequence, facts);
  }
  using Words = std::array<std::uint64_t, CallRecord::kWords>;
  for (const std::uint64_t word : std::bit_cast<Words>(facts)) history_ = hash_combine(history_, word);
  return before;
}

/// Where a member tells what it called; null in a group of one.
MemberControl* DeviceCore::told_by(int member) {
  Transport* const transport = engine().transport();
  return transport != nullptr ? &transport->domain()->control(member) : nullptr;
}

// ---- the worker's side ----

/// Until the stream has passed the call, or it cannot any more.
Status DeviceCore::watch(const DeviceTask& task) {
  const Nanos watched = real_env().now();
  Nanos begun = 0, looked = watched;
  for (;;) {
    const WatchedCall::Stage stage = task.watched->stage.load(std::memory_order_acquire);
    if (stage == WatchedCall::Stage::refused) return task.watched->refusal;
    if (stage == WatchedCall::Stage::enqueued) {
      auto passed = backend_.query(task.watched->end);
      if (!passed.ok()) return passed.status();
      if (*passed) {
        tell_reached(task);
        return gave_up(task);
      }
    }
    if (engine().state() != ErrorCode::ok) return engine().reason();
    const Nanos now = real_env().now();
    if (now - looked > kLookEvery) {
      looked = now;
      LOCKSTEP_RETURN_IF_ERROR(look_after(task, now, begun));
    }
    ++looks_;
    now - watched < kYieldingWait ? void(sched_yield()) : sleep_for(kPause);
  }
}

/// Whether its kernels, the peers and the clock let it go on. `begun`: when the stream was first seen to have
/// come to it; 0: not yet.
Status DeviceCore::look_after(const DeviceTask& task, Nanos now, Nanos& begun) {
  heed_leavers();
  LOCKSTEP_RETURN_IF_ERROR(gave_up(task));
  for (CommunicatorCore* group : {collectives_.get(), control_.get()}) {
    if (group->engine().poll_state() != ErrorCode::ok) return group->engine().reason();
  }
  auto ready = backend_.query(task.watched->begin);
  if (!ready.ok()) return ready.status();
  if (*ready && begun == 0) {
    begun = now;
    tell_reached(task);
  }
  // A kernel with messages gives up by itself, and tells whom it waited for.
  const Nanos limit = task.call ? task.timeout : task.timeout + kVerdict;
  const bool is_late = begun != 0 && task.timeout != 0 && now - begun > limit;
  return is_late ? late(task, -1) : Status();
}

/// A rank may leave without a failure once it is through with its own operations; kernels that wait for what
/// it would have to do next are to end.
void DeviceCore::heed_leavers() {
  for (int member = 0; sync_runner_ != nullptr && member < control_->size(); ++member) {
    const MemberControl* const told = told_by(member);
    if (told != nullptr && told->left.load(std::memory_order_acquire) != 0) sync_runner_->note_left(member);
  }
}

/// That this rank's stream has: the deadline of a peer's call names who it waits for.
void DeviceCore::tell_reached(const DeviceTask& task) {
  MemberControl* const own = task.call ? told_by(control_->rank()) : nullptr;
  if (own != nullptr) own->reached.store(task.watched->sequence + 1, std::memory_order_release);
}

/// Why a kernel of the task did, or who called something else.
Status DeviceCore::gave_up(const DeviceTask& task) {
  const auto found = sync_runner_ != nullptr ? sync_runner_->trouble() : std::nullopt;
  if (found)
    return found->is_late && task.call ? late(task, found->member)
                                       : explained(*found, name_of(task, found->member));
  return task.call ? compare_calls(task) : Status();
}

Status DeviceCore::explained(const CallTrouble& trouble, std::string_view what) {
  const std::string member = engine().who(trouble.member), self = engine().who(control_->rank());
  if (trouble.has_left)
    return Status(ErrorCode::peer_lost,
                  "lockstep: " + member + " left while " + std::string(what) + " waited for it",
                  trouble.member);
  if (trouble.is_late) {
    return Status(ErrorCode::timeout,
                  "lockstep: the deadline of " + std::string(what) + " passed; it waited for " + member,
                  trouble.member);
  }
  return Status(ErrorCode::mismatch,
                "lockstep: " + std::string(what) + ": " + member + " sends " + std::to_string(trouble.sent) +
                    " bytes, but " + self + " receives " + std::to_string(trouble.expected),
                trouble.member);
}

/// A rank that called something else at this place is named on all ranks.
Status DeviceCore::compare_calls(const DeviceTask& task) {
  const std::uint64_t sequence = task.watched->sequence;
  const std::uint64_t place = sequence % kRecentCalls, history = task.watched->history;
  const CallFacts& mine = task.watched->facts;
  for (int member = 0; member < control_->size(); ++member) {
    const MemberControl* const told = told_by(member);
    if (told == nullptr) continue;
    const CallRecord& record = told->recent[place];
    if (record.read_beside(sequence, told->before[place]).value_or(history) != history)
      return Status(ErrorCode::mismatch,
                    "lockstep: an operation before #" + std::to_string(sequence - kFirstSequence) +
                        " differs between " + engine().who(member) + " and " +
                        engine().who(control_->rank()) + "; which is known of the last " +
                        std::to_string(kRecentCalls) + " only",
                    member);
    if (told->left.load(std::memory_order_acquire) != 0 && !record.has_come_to(sequence))
      return Status(ErrorCode::peer_lost,
                    "lockstep: " + engine().who(member) + " left before its operation #" +
                        std::to_string(sequence - kFirstSequence) + ", " +
                        internal::describe(task.call->call().facts),
                    member);
    const auto theirs = record.read(sequence);
    if (!theirs || *theirs == mine) continue;
    if (const CallFacts& call = task.call->call().facts; is_elsewhere(*theirs, mine, call))
      return Status(ErrorCode::mismatch,
                    "lockstep: " + engine().who(member) + " and " + engine().who(control_->rank()) +
                        " called " + internal::describe(call) +
                        " on different places of their windows: register_window was promised the same",
                    member);
    return Status(ErrorCode::mismatch,
                  "lockstep: operation #" + std::to_string(sequence - kFirstSequence) +
                      " differs: " + engine().who(member) + " called " + internal::describe(*theirs) +
                      ", but " + engine().who(control_->rank()) + " called " +
                      internal::describe(task.call->call().facts),
                  member);
  }
  return {};
}

/// The deadline passed: who has not made the call, or has not come to it; else whom a kernel waited for,
/// where one told.
Status DeviceCore::late(const DeviceTask& task, int awaited) {
  const std::uint64_t sequence = task.watched->sequence;
  std::string who;
  for (int member = 0; task.call && member < control_->size(); ++member) {
    const MemberControl* const told = told_by(member);
    if (told == nullptr) continue;
    const CallRecord& record = told->recent[sequence % kRecentCalls];
    if (!record.has_come_to(sequence))
      who += "; " + engine().who(member) + " has not made it";
    else if (member != control_->rank() && told->reached.load(std::memory_order_acquire) < sequence + 1)
      who += "; " + engine().who(member) + " has made it, but its stream has not come to it";
  }
  if (who.empty() && awaited >= 0) who = "; it waited for " + engine().who(awaited);
  return Status(ErrorCode::timeout, "lockstep: the deadline of " + std::to_string(task.timeout / 1'000'000) +
                                        " ms for " + name_of(task) + " passed" + who);
}

/// Nobody writes to this rank's memory any more, or the error says that it may be so. Where nobody could,
/// kernels that wait are let go first, which needs no call of the driver.
void DeviceCore::close() {
  if (windows_.empty() && sync_runner_ != nullptr) static_cast<void>(sync_runner_->let_pass(stream_));
  const Status closed = in_ranks_of(*control_, *near_, steps_->close());
  if (closed.code() != ErrorCode::timeout) return;
  const std::lock_guard lock(state_mutex_);
  failure_ = Status(
      failure_.code(),
      failure_.message() + "; what is under way may still write to buffers of this rank: " + closed.message(),
      failure_.culprit());
}

/// After a failure the stream's waits are let pass, again and again: peers that are still alive go on writing
/// their phases. Its caller may still be enqueuing, and be kept by a full stream: no lock is taken here.
void DeviceCore::let_pass(const DeviceTask& task) {
  if (failure().ok()) return;
  for (;;) {
    const bool whole =
        task.watched->stage.load(std::memory_order_acquire) != WatchedCall::Stage::being_enqueued;
    const auto passed = backend_.query(task.watched->end);
    if (whole && (!passed.ok() || passed.value())) return;
    static_cast<void>(runner_->let_pass(stream_));
    if (sync_runner_ != nullptr) static_cast<void>(sync_runner_->let_pass(stream_));
    static_cast<void>(backend_.synchronize(stream_));
    sleep_for(kPause);
  }
}

}  // namespace lockstep::internal
