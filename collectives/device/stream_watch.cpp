#include "collectives/device/stream_watch.hpp"

#include "collectives/device/message_plan.hpp"
#include "collectives/device/patience.hpp"

namespace lockstep::internal {
namespace {

WatchedCall::Stage stage_of(const DeviceTask& task) {
  return task.watched->stage.load(std::memory_order_acquire);
}

/// Why the caller could not enqueue it.
Status refusal_of(const DeviceTask& task) {
  return stage_of(task) == WatchedCall::Stage::refused ? task.watched->refusal : Status();
}

}  // namespace

Status StreamWatch::watch(const DeviceTask& task) {
  for (Patience patience(0);; patience.pause()) {
    const WatchedCall::Stage stage = stage_of(task);
    if (stage == WatchedCall::Stage::refused) return task.watched->refusal;
    if (stage == WatchedCall::Stage::enqueued) {
      auto passed = has_passed(task);
      if (!passed.ok()) return passed.status();
      if (*passed) {
        stream_calls_->tell_reached(task);
        stream_calls_->tell_passed(task);
        return gave_up(task);
      }
    }
    Engine& engine = groups_.engine();
    if (engine.state() != ErrorCode::ok) return engine.reason();
    if (patience.is_time_to_look()) {
      LOCKSTEP_RETURN_IF_ERROR(look_after(task));
      LOCKSTEP_RETURN_IF_ERROR(heed_deadline(task, real_env().now()));
    }
    ++looks_;
  }
}

/// Of its stream. By marks that is no call to the driver: a call of the program that waits for a stream may
/// keep all others from it, and the stream may wait for what this thread carries next.
Result<bool> StreamWatch::has_reached(const DeviceTask& task) const {
  if (task.watched->is_marked) return marks_.has_begun(task.watched->mark);
  return backend_.query(task.watched->begin);
}
Result<bool> StreamWatch::has_passed(const DeviceTask& task) const {
  if (task.watched->is_marked) return marks_.has_ended(task.watched->mark);
  return backend_.query(task.watched->end);
}

/// Whether its kernels and the peers let it go on.
Status StreamWatch::look_after(const DeviceTask& task) {
  stream_calls_->tell_looked(real_env().now());
  heed_leavers();
  LOCKSTEP_RETURN_IF_ERROR(gave_up(task));
  return groups_.ended();
}

Status StreamWatch::heed_deadline(const DeviceTask& task, Nanos now) {
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

Status StreamWatch::wait_until_begun(const DeviceTask& task) {
  for (Patience patience; !marks_.has_begun(task.watched->mark); patience.pause()) {
    LOCKSTEP_RETURN_IF_ERROR(refusal_of(task));
    if (groups_.engine().state() != ErrorCode::ok) return groups_.ended();
    if (patience.is_time_to_look()) LOCKSTEP_RETURN_IF_ERROR(look_after(task));
  }
  task.watched->begun = real_env().now();
  stream_calls_->tell_looked(task.watched->begun);
  stream_calls_->tell_reached(task);
  return {};
}

/// Which tells the ranks beside this one whom it waits for.
RelayWatch StreamWatch::between_hosts(const DeviceTask& task) {
  RelayWatch watch;
  watch.end = task.timeout == 0 ? 0 : end_after(task.timeout);
  watch.look = [&](const std::vector<int>& awaited) {
    stream_calls_->tell_awaited(awaited);
    stream_calls_->tell_looked(real_env().now());
    if (task.watched == nullptr) return groups_.ended();
    Status refusal = refusal_of(task);
    return refusal.ok() ? look_after(task) : refusal;
  };
  watch.late = [&](const std::vector<int>& awaited) {
    stream_calls_->tell_awaited(awaited);
    return task.watched == nullptr && awaited.empty() ? kept_from_device() : late(task, -1);
  };
  return watch;
}

Status StreamWatch::carry_columns(const DeviceTask& task) {
  const RelayWatch watch = between_hosts(task);
  LOCKSTEP_RETURN_IF_ERROR(compare_with_all(task, watch.end));
  LOCKSTEP_RETURN_IF_ERROR(
      across_->carry(*task.watched->hosts, watch).with_context("lockstep: " + name_of(task)));
  stream_calls_->tell_carried(task);
  return {};
}

Status StreamWatch::run_between_hosts(const DeviceTask& task) {
  const Call& call = task.call->call();
  const RelayWatch watch = between_hosts(task);
  stream_calls_->tell_looked(real_env().now());
  stream_calls_->tell_reached(task);
  LOCKSTEP_RETURN_IF_ERROR(compare_with_all(task, watch.end));
  if (passes_as_messages(call.facts.collective)) return {};
  LOCKSTEP_RETURN_IF_ERROR(across_->run(call, watch).with_context("lockstep: " + name_of(task)));
  stream_calls_->tell_carried(task);
  return {};
}

/// All ranks find out whether they call the same. The engine would know at the deadline who is waited for,
/// and not who beside this rank has not come.
Status StreamWatch::compare_with_all(const DeviceTask& task, Nanos end) {
  Engine& engine = groups_.engine();
  Call call = task.call->call();
  call.timeout = 0;
  return engine.run(call, kLookEvery, [&](const Operation& comparison) {
    const Nanos now = real_env().now();
    stream_calls_->tell_awaited(engine.awaited_by(comparison));
    stream_calls_->tell_looked(now);
    if (end != 0 && now >= end) engine.request_revoke(late(task, -1));
  });
}

void StreamWatch::heed_leavers() {
  for (int member = 0; sync_runner_ != nullptr && member < groups_.near->size(); ++member) {
    if (stream_calls_->has_left(member)) sync_runner_->note_left(member);
  }
}

/// Why a kernel of the task did, or who called something else.
Status StreamWatch::gave_up(const DeviceTask& task) const {
  if (const auto found = end_.trouble())
    return found->is_late && task.call ? late(task, found->member)
                                       : groups_.explained(*found, name_of(task, found->member));
  return task.call ? groups_.of_near(stream_calls_->compare(task)) : Status();
}

/// Of the ranks of this host.
Status StreamWatch::late(const DeviceTask& task, int awaited) const {
  return groups_.of_near(stream_calls_->late(task, awaited, real_env().now()));
}

void StreamWatch::let_pass(const DeviceTask& task) {
  if (end_.failure().ok()) return;
  for (;; sleep_for(kPause)) {
    const bool whole = stage_of(task) != WatchedCall::Stage::being_enqueued;
    end_.release_waits();
    static_cast<void>(runner_->let_pass(stream_));
    static_cast<void>(backend_.synchronize(stream_));
    const auto passed = backend_.query(task.watched->end);
    if (whole && (!passed.ok() || passed.value())) return;
  }
}

}  // namespace lockstep::internal
