// Modes stream_sync and device_sync: what the caller's stream runs itself, and what the worker does about it.
#include "collectives/device/device_core.hpp"
#include "collectives/device/message_plan.hpp"
#include "collectives/device/patience.hpp"

namespace lockstep::internal {
namespace {

bool is_of_messages(const DeviceTask& task) {
  return !task.call || passes_as_messages(task.call->call().facts.collective);
}

}  // namespace

bool DeviceCore::runs_on_stream(const DeviceTask& task) {
  if (runner_ == nullptr) return false;
  if (!is_of_messages(task)) return true;
  return (carrier_ != nullptr || courier_ != nullptr) && (task.call || !task.messages.empty());
}

/// Then a call of the program that blocks in the driver keeps nothing from the worker's part in this call, or
/// in one behind it.
/// Elsewhere events tell it, so that device_sync on one host needs no stream memory operations.
bool DeviceCore::sees_by_marks() const { return courier_ != nullptr || across_ != nullptr; }

/// The worker has a part in it: the network's, or to tell the courier what to copy.
bool DeviceCore::is_carried(const DeviceTask& task) const {
  return is_of_messages(task) ? courier_ != nullptr : across_ != nullptr;
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
  if (status.ok()) return status;
  status = status.with_context("lockstep: " + name_of(*task));
  if (watched.is_carried) end_carried(status);
  return status;
}

/// The worker may be waiting for what the stream will not do.
void DeviceCore::end_carried(const Status& why) {
  fail(why);
  if (courier_ != nullptr) courier_->let_pass();
}

Status DeviceCore::prepare_watch(DeviceTask& task, std::span<const DeviceStream> streams) {
  LOCKSTEP_RETURN_IF_ERROR(order_.follow(streams.front()));
  LOCKSTEP_RETURN_IF_ERROR(join(task, streams));
  auto watched = std::make_unique<WatchedCall>();
  watched->is_marked = sees_by_marks();
  LOCKSTEP_RETURN_IF_ERROR(watched->is_marked ? book(task, *watched)
                                              : note_begin(task, *watched, streams.front()));
  auto end = event_of(task);
  if (!end.ok()) return end.status();
  watched->end = *end;
  if (task.call) watched->call = stream_calls_->note(task.call->call());
  task.watched = std::move(watched);
  return {};
}

Status DeviceCore::note_begin(DeviceTask& task, WatchedCall& watched, DeviceStream stream) {
  auto begin = event_of(task);
  if (!begin.ok()) return begin.status();
  watched.begin = *begin;
  return backend_.record(*begin, stream);
}

Status DeviceCore::book(const DeviceTask& task, WatchedCall& watched) {
  watched.mark = marks_->next_number();
  watched.is_carried = is_carried(task);
  if (!watched.is_carried || is_of_messages(task)) return {};
  auto booking = across_->book(task.call->call());
  if (booking.ok()) watched.hosts = std::move(*booking);
  return booking.status();
}

/// The end is noted also where only some of it is enqueued.
Status DeviceCore::enqueue_watched(DeviceTask& task, std::span<const DeviceStream> streams) {
  const DeviceStream stream = streams.front();
  const WatchedCall& watched = *task.watched;
  Status status = watched.is_marked ? marks_->enqueue_begin(watched.mark, stream) : Status();
  if (status.ok()) status = run_in_stream(*runner_, task, stream);
  Status ended = backend_.record(watched.end, stream);
  if (ended.ok() && watched.is_marked) ended = marks_->enqueue_end(watched.mark, stream);
  LOCKSTEP_RETURN_IF_ERROR(status);
  LOCKSTEP_RETURN_IF_ERROR(ended);
  for (const DeviceStream other : streams.subspan(1))
    LOCKSTEP_RETURN_IF_ERROR(backend_.wait_event(other, watched.end));
  return order_.note(stream);
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
  if (is_of_messages(task) && courier_ != nullptr) return courier_->enqueue(stream);
  if (!task.call) return carrier_->enqueue(task.messages, task.timeout, stream);
  const Call& call = task.call->call();
  if (passes_as_messages(call.facts.collective))
    return carrier_->enqueue(messages_of(call, control_->rank(), control_->size()), call.timeout, stream);
  if (task.copy_from != nullptr && call.output_elements > 0)
    LOCKSTEP_RETURN_IF_ERROR(
        backend_.copy(call.output, task.copy_from, call.output_elements * size_of(call.facts.type), stream));
  return across_ != nullptr ? across_->enqueue(*task.watched->hosts, call, runner, stream)
                            : runner.enqueue(call, stream);
}

/// No event and no task: the call runs when the graph does, and as often. Its kernels have their own
/// deadline; the worker looks from time to time whether the group ended.
Status DeviceCore::record_in_graph(DeviceTask& task, std::span<const DeviceStream> streams) {
  if (streams.size() > 1)
    return Status(
        ErrorCode::not_supported,
        "a batch of messages that is captured in a graph names one stream: others are joined to it by "
        "events of the caller");
  if (task.call) stream_calls_->note(task.call->call());
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

// ---- the worker's side ----

/// Until the stream has passed the call, or it cannot any more.
Status DeviceCore::watch(const DeviceTask& task) {
  for (Patience patience(0);; patience.pause()) {
    const WatchedCall::Stage stage = task.watched->stage.load(std::memory_order_acquire);
    if (stage == WatchedCall::Stage::refused) return task.watched->refusal;
    if (stage == WatchedCall::Stage::enqueued) {
      auto passed = has_passed(task);
      if (!passed.ok()) return passed.status();
      if (*passed) {
        stream_calls_->tell_reached(task);
        return gave_up(task);
      }
    }
    if (engine().state() != ErrorCode::ok) return engine().reason();
    if (patience.is_time_to_look()) {
      LOCKSTEP_RETURN_IF_ERROR(look_after(task));
      LOCKSTEP_RETURN_IF_ERROR(heed_deadline(task, real_env().now()));
    }
    ++looks_;
  }
}

/// Of its stream. By marks that is no call to the driver: a call of the program that waits for a stream may
/// keep all others from it, and the stream may wait for what this thread carries next.
Result<bool> DeviceCore::has_reached(const DeviceTask& task) {
  if (task.watched->is_marked) return marks_->has_begun(task.watched->mark);
  return backend_.query(task.watched->begin);
}
Result<bool> DeviceCore::has_passed(const DeviceTask& task) {
  if (task.watched->is_marked) return marks_->has_ended(task.watched->mark);
  return backend_.query(task.watched->end);
}

/// Whether its kernels and the peers let it go on.
Status DeviceCore::look_after(const DeviceTask& task) {
  heed_leavers();
  LOCKSTEP_RETURN_IF_ERROR(gave_up(task));
  return ended_group();
}

Status DeviceCore::heed_deadline(const DeviceTask& task, Nanos now) {
  WatchedCall& watched = *task.watched;
  auto reached = has_reached(task);
  if (!reached.ok()) return reached.status();
  if (*reached && watched.begun == 0) {
    watched.begun = now;
    stream_calls_->tell_reached(task);
  }
  // A kernel with messages gives up by itself, and tells whom it waited for.
  const Nanos limit = task.call ? task.timeout : task.timeout + kVerdict;
  const bool is_late = watched.begun != 0 && task.timeout != 0 && now - watched.begun > limit;
  return is_late ? late(task, -1) : Status();
}

/// The worker's part in what the stream runs. No call to the driver here, either.
Status DeviceCore::carry(const DeviceTask& task) {
  works_itself_ = true;
  Status status = wait_until_begun(task);
  if (status.ok()) {
    task.watched->begun = real_env().now();
    stream_calls_->tell_reached(task);
    status = task.watched->hosts ? carry_columns(task) : carry_messages(task);
  }
  works_itself_ = false;
  return status;
}

Status DeviceCore::carry_columns(const DeviceTask& task) {
  const Nanos end = task.timeout == 0 ? 0 : end_after(task.timeout);
  const auto look = [&] {
    const bool is_refused =
        task.watched->stage.load(std::memory_order_acquire) == WatchedCall::Stage::refused;
    return is_refused ? task.watched->refusal : look_after(task);
  };
  LOCKSTEP_RETURN_IF_ERROR(engine().run(task.call->call()));
  return across_->carry(*task.watched->hosts, {end, look, [&] { return late(task, -1); }})
      .with_context("lockstep: " + name_of(task));
}

Status DeviceCore::carry_messages(const DeviceTask& task) {
  Status status = task.call ? run_collective(task) : run_messages(task);
  courier_->send_home();
  return status;
}

Status DeviceCore::wait_until_begun(const DeviceTask& task) {
  for (Patience patience; !marks_->has_begun(task.watched->mark); patience.pause()) {
    if (task.watched->stage.load(std::memory_order_acquire) == WatchedCall::Stage::refused)
      return task.watched->refusal;
    if (engine().state() != ErrorCode::ok) return ended_group();
    if (patience.is_time_to_look()) LOCKSTEP_RETURN_IF_ERROR(look_after(task));
  }
  return {};
}

/// A rank may leave without a failure once it is through with its own operations; kernels that wait for what
/// it would have to do next are to end.
void DeviceCore::heed_leavers() {
  for (int member = 0; sync_runner_ != nullptr && member < near_->size(); ++member) {
    if (stream_calls_->has_left(member)) sync_runner_->note_left(member);
  }
}

/// Why a kernel of the task did, or who called something else.
Status DeviceCore::gave_up(const DeviceTask& task) {
  const auto found = sync_runner_ != nullptr ? sync_runner_->trouble() : std::nullopt;
  if (found)
    return found->is_late && task.call ? late(task, found->member)
                                       : explained(*found, name_of(task, found->member));
  return task.call ? in_ranks_of(*control_, *near_, stream_calls_->compare(task)) : Status();
}

/// Of the ranks of this host.
Status DeviceCore::late(const DeviceTask& task, int awaited) {
  return in_ranks_of(*control_, *near_, stream_calls_->late(task, awaited));
}

Status DeviceCore::explained(const CallTrouble& trouble, std::string_view what) {
  Engine& here = near_->engine();
  const std::string member = here.who(trouble.member), self = here.who(near_->rank());
  const auto in_all = [&](ErrorCode code, std::string text) {
    return in_ranks_of(*control_, *near_, Status(code, std::move(text), trouble.member));
  };
  if (trouble.has_left)
    return in_all(ErrorCode::peer_lost,
                  "lockstep: " + member + " left while " + std::string(what) + " waited for it");
  if (trouble.is_late)
    return in_all(ErrorCode::timeout,
                  "lockstep: the deadline of " + std::string(what) + " passed; it waited for " + member);
  return in_all(ErrorCode::mismatch, "lockstep: " + std::string(what) + ": " + member + " sends " +
                                         std::to_string(trouble.sent) + " bytes, but " + self + " receives " +
                                         std::to_string(trouble.expected));
}

/// What streams and kernels wait for in pinned memory: no call to the driver.
void DeviceCore::release_waits() {
  if (across_ != nullptr) across_->let_pass();
  if (courier_ != nullptr) courier_->let_pass();
  if (sync_runner_ != nullptr) static_cast<void>(sync_runner_->let_pass(stream_));
}

/// Nobody writes to this rank's memory any more, or the error says that it may be so. Where nobody could,
/// kernels that wait are let go first, which needs no call of the driver.
void DeviceCore::close() {
  if (windows_.empty()) release_waits();
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
  for (;; sleep_for(kPause)) {
    const bool whole =
        task.watched->stage.load(std::memory_order_acquire) != WatchedCall::Stage::being_enqueued;
    release_waits();
    static_cast<void>(runner_->let_pass(stream_));
    static_cast<void>(backend_.synchronize(stream_));
    const auto passed = backend_.query(task.watched->end);
    if (whole && (!passed.ok() || passed.value())) return;
  }
}

}  // namespace lockstep::internal
