#include "collectives/device/worker_side.hpp"

#include <utility>

#include "collectives/device/message_plan.hpp"
#include "collectives/device/patience.hpp"

namespace lockstep::internal {

void WorkerSide::run(DeviceTask& task) {
  const BesideCaptures beside(backend_);
  works_itself_ = task.watched == nullptr;
  if (end_.failure().ok()) {
    Status status = task.watched ? run_watched(task) : run_itself(task);
    // Alone nobody was told of a refused call, and nobody is out of step.
    const bool harmless = task.call && task.ticket == 0 && groups_.engine().group().size() == 1;
    if (!status.ok() && !harmless) end_.fail(groups_.explained(std::move(status)));
  }
  if (!end_.failure().ok()) end_.close();  // Also where another thread knew of it first.
  if (task.watched) watch_.let_pass(task);
  if (task.ticket != 0) gate_.release(task.ticket);
  buffers_.forget_peers();
  if (task.watched || task.ticket != 0) held_.release();
  events_.give_back(task.ready);
  works_itself_ = false;
}

Status WorkerSide::run_watched(const DeviceTask& task) {
  if (task.watched->is_carried) {
    works_itself_ = true;
    const Status carried = carry(task);
    works_itself_ = false;
    LOCKSTEP_RETURN_IF_ERROR(carried);
  }
  return watch_.watch(task);
}

/// The worker's part in what the stream runs. No call to the driver here.
Status WorkerSide::carry(const DeviceTask& task) {
  LOCKSTEP_RETURN_IF_ERROR(watch_.wait_until_begun(task));
  if (task.watched->hosts) return watch_.carry_columns(task);
  Status status = run_operation(task);
  courier_->send_home();
  return status;
}

Status WorkerSide::run_itself(const DeviceTask& task) {
  LOCKSTEP_RETURN_IF_ERROR(task.refusal);
  LOCKSTEP_RETURN_IF_ERROR(wait_until_ready(task));
  return run_operation(task);
}

/// Until the caller's streams have come to the operation, the group ended, or a peer ended it.
Status WorkerSide::wait_until_ready(const DeviceTask& task) {
  Patience patience;
  for (const DeviceEvent event : task.ready) {
    for (;; patience.pause()) {
      auto come = backend_.query(event);
      if (!come.ok()) return come.status();
      if (*come) break;
      if (groups_.engine().state() != ErrorCode::ok) return groups_.ended();
      if (!patience.is_time_to_look()) continue;
      LOCKSTEP_RETURN_IF_ERROR(groups_.ended());
      const auto found = end_.trouble();
      if (found)
        return groups_.explained(*found, "a call in a graph");  // Whose kernels may hold this stream.
    }
  }
  return {};
}

void WorkerSide::look_after_graphs() {
  watch_.heed_leavers();
  if (end_.known_state().ok()) return;
  const BesideCaptures beside(backend_);
  end_.close();
  end_.let_graphs_pass();
}

void WorkerSide::let_look() {
  if (parts_.runner == nullptr) return;
  const std::uint64_t fresh = watch_.looks() + 2;  // One may have begun before.
  for (const Nanos end = real_env().now() + kVerdict; real_env().now() < end; sleep_for(kPause)) {
    if (!end_.failure().ok() || worker_.idle() || works_itself_ || watch_.looks() >= fresh) return;
  }
}

// ---- operations that it runs, or carries for the courier ----

Status WorkerSide::run_operation(const DeviceTask& task) {
  return task.call ? run_collective(task) : run_messages(task);
}

Status WorkerSide::run_collective(const DeviceTask& task) {
  const Call& call = task.call->call();
  steps_.set_end(end_after(task.timeout));
  if (task.copy_from != nullptr && call.refusal.ok() && call.output_elements > 0) {
    LOCKSTEP_RETURN_IF_ERROR(
        backend_.copy(call.output, task.copy_from, call.output_elements * size_of(call.facts.type), stream_));
    LOCKSTEP_RETURN_IF_ERROR(steps_.complete());  // Peers may read it where it lies.
  }
  Engine& engine = groups_.engine();
  const bool is_told = across_ != nullptr && parts_.runner == nullptr;
  LOCKSTEP_RETURN_IF_ERROR(is_told ? watch_.run_between_hosts(task) : engine.run(call));
  if (passes_as_messages(call.facts.collective) && engine.group().size() > 1) return run_as_messages(call);
  return {};
}

/// After a barrier in which the ranks found out whether they all called the same.
Status WorkerSide::run_as_messages(const Call& call) {
  const EngineGroup& group = groups_.engine().group();
  return failed_here(messenger_.run(messages_of(call, group.rank, group.size()), call.timeout),
                     internal::describe(call.facts));
}

Status WorkerSide::run_messages(const DeviceTask& task) {
  const Status status = messenger_.run(task.messages, task.timeout);
  if (status.ok()) return status;
  const DeviceMessage* const one = messenger_.unfinished(status.culprit());
  return failed_here(status,
                     one != nullptr ? internal::describe({one, 1}) : internal::describe(task.messages));
}

Status WorkerSide::failed_here(const Status& why, const std::string& what) const {
  const int rank = groups_.engine().group().rank;
  return why.with_context("lockstep: " + what + " failed on rank " + std::to_string(rank));
}

}  // namespace lockstep::internal
