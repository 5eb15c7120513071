// What the worker does with a task; and how an operation ends.
#include <utility>

#include "collectives/device/device_core.hpp"
#include "collectives/device/message_plan.hpp"
#include "collectives/device/patience.hpp"

namespace lockstep::internal {
namespace {

/// The words that the engine has for the end of a group.
Status reason_of(Engine& engine) {
  return engine.reason().with_context("lockstep: the group \"" + engine.group().name + "\" ended on rank " +
                                      std::to_string(engine.group().rank));
}

}  // namespace

void DeviceCore::run(DeviceTask& task) {
  const BesideCaptures beside(backend_);
  works_itself_ = task.watched == nullptr;
  Status status = failure();
  if (status.ok()) {
    status = !task.watched ? task.refusal : task.watched->is_carried ? carry(task) : Status();
    if (status.ok() && task.watched) status = watch(task);
    if (status.ok() && !task.watched) status = wait_until_ready(task);
    if (status.ok() && !task.watched) status = task.call ? run_collective(task) : run_messages(task);
    // Alone nobody was told of a refused call, and nobody is out of step.
    const bool harmless = task.call && task.ticket == 0 && engine().group().size() == 1;
    if (!status.ok() && !harmless) fail(explained(std::move(status)));
  }
  if (!failure().ok()) close();  // Also where another thread knew of it first.
  if (task.watched) let_pass(task);
  if (task.ticket != 0) gate_->release(task.ticket);
  buffers_->forget_peers();
  if (task.watched || task.ticket != 0) held_.release();
  events_.give_back(task.ready);
  works_itself_ = false;
}

/// A peer that revoked a group and left may be missed before its words are heard.
Status DeviceCore::explained(Status status) {
  if (status.code() != ErrorCode::peer_lost) return status;
  for (CommunicatorCore* const group : groups()) {
    const ErrorCode state = group->engine().poll_state();
    if (state != ErrorCode::ok && state != ErrorCode::peer_lost)
      return in_ranks_of(*control_, *group, reason_of(group->engine()));
  }
  return status;
}

/// Why a group ended, if one did.
Status DeviceCore::ended_group() {
  for (CommunicatorCore* const group : groups()) {
    if (group->engine().poll_state() != ErrorCode::ok)
      return in_ranks_of(*control_, *group, reason_of(group->engine()));
  }
  return {};
}

/// Until the caller's streams have come to the operation, the group ended, or a peer ended it.
Status DeviceCore::wait_until_ready(const DeviceTask& task) {
  Patience patience;
  for (const DeviceEvent event : task.ready) {
    for (;; patience.pause()) {
      auto come = backend_.query(event);
      if (!come.ok()) return come.status();
      if (*come) break;
      if (engine().state() != ErrorCode::ok) return reason_of(engine());
      if (!patience.is_time_to_look()) continue;
      LOCKSTEP_RETURN_IF_ERROR(ended_group());
      const auto found = sync_runner_ != nullptr ? sync_runner_->trouble() : std::nullopt;
      if (found) return explained(*found, "a call in a graph");  // Whose kernels may hold this stream.
    }
  }
  return {};
}

Status DeviceCore::run_collective(const DeviceTask& task) {
  const Call& call = task.call->call();
  steps_->set_end(end_after(task.timeout));
  if (task.copy_from != nullptr && call.refusal.ok() && call.output_elements > 0) {
    LOCKSTEP_RETURN_IF_ERROR(
        backend_.copy(call.output, task.copy_from, call.output_elements * size_of(call.facts.type), stream_));
    LOCKSTEP_RETURN_IF_ERROR(steps_->complete());  // Peers may read it where it lies.
  }
  LOCKSTEP_RETURN_IF_ERROR(engine().run(call));
  if (passes_as_messages(call.facts.collective) && engine().group().size() > 1) return run_as_messages(call);
  if (across_ != nullptr) {
    Status status = across_->run(call);
    if (!status.ok()) return status.with_context("lockstep: " + internal::describe(call.facts));
  }
  return {};
}

/// After a barrier in which the ranks found out whether they all called the same.
Status DeviceCore::run_as_messages(const Call& call) {
  const EngineGroup& group = engine().group();
  return failed_here(messenger_->run(messages_of(call, group.rank, group.size()), call.timeout),
                     internal::describe(call.facts));
}

Status DeviceCore::run_messages(const DeviceTask& task) {
  const Status status = messenger_->run(task.messages, task.timeout);
  if (status.ok()) return status;
  const DeviceMessage* const one = messenger_->unfinished(status.culprit());
  return failed_here(status,
                     one != nullptr ? internal::describe({one, 1}) : internal::describe(task.messages));
}

Status DeviceCore::failed_here(const Status& why, const std::string& what) {
  return why.with_context("lockstep: " + what + " failed on rank " + std::to_string(engine().group().rank));
}

// ---- ends ----

/// The first failure ends everything: all groups are revoked, and every later task passes at once.
void DeviceCore::fail(const Status& why) {
  {
    const std::lock_guard lock(state_mutex_);
    if (failure_.ok()) failure_ = why;
  }
  revoke(why);
}

/// Who failed is told to all by the number that it has among all. A call that was refused is an error of its
/// own to its caller: the peers hear the same by all groups.
void DeviceCore::revoke(const Status& why) {
  const Status reason = engine().reason();
  const Status& told = reason.code() == ErrorCode::refused ? reason : why;
  for (CommunicatorCore* const group : groups()) {
    const bool has_all = group->size() == control_->size();
    group->engine().request_revoke(has_all ? told : Status(told.code(), told.message()));
  }
}

Status DeviceCore::failure() {
  const std::lock_guard lock(state_mutex_);
  return failure_;
}

Status DeviceCore::wait() {
  worker_->wait();
  return state();
}

/// A kernel that gave up let its stream go on, and whoever saw that asks at once. The worker can tell of
/// which call it was, but for those in graphs.
void DeviceCore::heed_kernels() {
  const auto trouble = sync_runner_ != nullptr ? sync_runner_->trouble() : std::nullopt;
  if (!trouble) return;
  if (recorded_) return fail(explained(*trouble, "a call in a graph"));
  for (const Nanos end = real_env().now() + kVerdict; failure().ok() && real_env().now() < end;)
    sleep_for(kPause);
  if (failure().ok()) fail(explained(*trouble, "a call"));
}

/// The worker may be about to see what the streams have passed, and whoever saw that asks at once. No call
/// to the driver: another one may keep its caller.
void DeviceCore::let_worker_look() {
  if (runner_ == nullptr) return;
  const std::uint64_t fresh = looks_ + 2;  // One may have begun before.
  for (const Nanos end = real_env().now() + kVerdict; real_env().now() < end; sleep_for(kPause)) {
    if (!failure().ok() || worker_->idle() || works_itself_ || looks_ >= fresh) return;
  }
}

Status DeviceCore::state() {
  let_worker_look();
  return known_state();
}

Status DeviceCore::known_state() {
  if (Status status = failure(); !status.ok()) return status;
  heed_kernels();
  for (CommunicatorCore* const group : groups()) {
    if (finalized_ || group->engine().poll_state() == ErrorCode::ok) continue;
    fail(in_ranks_of(*control_, *group, reason_of(group->engine())));
  }
  return failure();
}

void DeviceCore::abort(std::string_view reason) {
  const int self = control_->rank();
  const Status why(ErrorCode::aborted, engine().who(self) + " aborted: " + std::string(reason), self);
  revoke(why);
}

Status DeviceCore::finalize() {
  {
    const std::lock_guard lock(start_mutex_);
    if (finalized_) return {};
  }
  LOCKSTEP_RETURN_IF_ERROR(wait());
  Status status = control_->finalize();
  const std::lock_guard lock(start_mutex_);
  finalized_ = true;
  for (CommunicatorCore* const group : groups()) group->engine().close();
  return status;
}

}  // namespace lockstep::internal
