// From a call to a task of the worker, with the caller's streams waiting for it.
#include <algorithm>
#include <utility>

#include "collectives/device/buffer_check.hpp"
#include "collectives/device/device_core.hpp"
#include "collectives/device/message_plan.hpp"
#include "collectives/device/shared_streams.hpp"

namespace lockstep::internal {
namespace {

bool waits_for_all(const Call& call) {
  switch (call.facts.collective) {
    case Collective::barrier:
      return true;
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return call.input_elements > 0;
    default:  // A root may be through before the others, and counts may be zero.
      return false;
  }
}

/// Of a broadcast's root, of which the builder has seen one buffer.
bool overlap(const void* one, const void* other, std::uint64_t bytes) {
  const auto a = reinterpret_cast<std::uintptr_t>(one), b = reinterpret_cast<std::uintptr_t>(other);
  return a < b + bytes && b < a + bytes;
}

}  // namespace

Status DeviceCore::start(CallBuilder builder, Stream stream, const DeviceCallOptions& options,
                         const void* copy_from) {
  const DeviceScope scope(backend_, device_);
  auto task = std::make_shared<DeviceTask>();
  builder.on_device(options.device_scale);
  if (const Status& entered = scope.status(); !entered.ok())
    builder.refuse(entered.code(), entered.message());
  const Call& call = builder.build();
  task->timeout = call.timeout;
  task->copy_from = copy_from;
  const std::size_t element = size_of(call.facts.type);
  const auto check = [&](const char* which, const void* pointer, std::uint64_t elements) {
    const Status place = check_place(backend_, device_, pointer, elements * element, which);
    if (!place.ok()) builder.refuse(place.code(), place.message());
  };
  check("input", call.input, call.input_elements);
  check("output", call.output, call.output_elements);
  check("input", copy_from, call.output_elements);
  check("device_scale", options.device_scale, call.facts.op == ReduceOp::premul_sum ? 1 : 0);
  if (copy_from != nullptr && overlap(copy_from, call.output, call.output_elements * element))
    builder.refuse(ErrorCode::invalid_argument,
                   "input and output overlap without being in place: give equal or separate buffers");
  task->call.emplace(std::move(builder));
  return enqueue(task, {&stream, 1});
}

Status DeviceCore::start(std::vector<DeviceMessage> messages, const DeviceCallOptions& options) {
  const DeviceScope scope(backend_, device_);
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  LOCKSTEP_RETURN_IF_ERROR(check_messages(backend_, device_, control_->rank(), messages));
  auto task = std::make_shared<DeviceTask>();
  task->timeout = timeout_of(options);
  std::vector<DeviceStream> streams;
  for (const DeviceMessage& message : messages) {
    if (std::find(streams.begin(), streams.end(), message.stream) == streams.end())
      streams.push_back(message.stream);
  }
  task->messages = std::move(messages);
  return enqueue(task, streams);
}

Status DeviceCore::enqueue(const std::shared_ptr<DeviceTask>& task, std::span<const DeviceStream> streams) {
  const std::lock_guard lock(start_mutex_);
  if (Status status = failure(); !status.ok()) return status;
  if (finalized_) return Status(ErrorCode::aborted, "lockstep: the communicator was finalized on this rank");
  if (engine().state() != ErrorCode::ok || control_->engine().state() != ErrorCode::ok) return known_state();
  const auto captured = is_any_captured(streams);
  const bool can_be_captured = runs_on_stream(*task) && capturer_ != nullptr && !is_carried(*task);
  if (captured.ok() && captured.value() && !can_be_captured) return refuse_capture(*task);
  Status refusal = find_refusal(*task, captured, streams);
  if (!refusal.ok()) return push_refused(task, std::move(refusal));
  if (!runs_on_stream(*task)) {
    refusal = hold(*task, streams);
  } else {
    if (!task->call && carrier_ != nullptr)
      LOCKSTEP_RETURN_IF_ERROR(fit_one_kernel(task->messages, control_->rank()));
    refusal = start_on_stream(task, streams, captured.value());
    if (task->watched != nullptr || task->recorded) return refusal;
  }
  if (!refusal.ok()) return push_refused(task, std::move(refusal));
  worker_->push(task);
  return {};
}

/// What is wrong with it, before anything of it is in a stream. Counts the calls.
Status DeviceCore::find_refusal(DeviceTask& task, const Result<bool>& captured,
                                std::span<const DeviceStream> streams) {
  if (!task.call) return captured.status();
  ++calls_;
  const Call& call = task.call->build();
  LOCKSTEP_RETURN_IF_ERROR(call.refusal);
  LOCKSTEP_RETURN_IF_ERROR(captured.status());
  return captured.value() ? Status() : check_stream(call, streams.front());
}

/// Of the calls in which no rank can go on before all have come.
Status DeviceCore::check_stream(const Call& call, DeviceStream stream) {
  if (!waits_for_all(call) || !has_ranks_beside_) return {};
  const auto number = backend_.stream_number(stream);
  if (!number.ok()) return number.status();
  const EngineGroup& group = control_->engine().group();
  const int other =
      SharedStreams::instance().enter({group.id, group.rank}, {device_, number.value()}, calls_);
  if (other < 0) return {};
  return Status(ErrorCode::invalid_argument,
                "the stream holds this call of rank " + std::to_string(other) +
                    " already, which waits for the one behind it for ever: ranks of one process need streams "
                    "of their own on a device",
                other);
}

/// A call keeps its place in the order, and the peers are told; and of messages that hold a stream already.
Status DeviceCore::push_refused(const std::shared_ptr<DeviceTask>& task, Status refusal) {
  if (task->call) {
    task->call->refuse(refusal.code(), refusal.message());
    refusal = refusal.with_context("lockstep: " + internal::describe(task->call->build().facts));
  } else if (task->ticket == 0) {
    events_.give_back(task->ready);
    return refusal;
  } else {
    task->refusal = refusal;
  }
  worker_->push(task);
  return refusal;
}

/// Notes where the streams are, and makes them wait for the task's end.
Status DeviceCore::hold(DeviceTask& task, std::span<const DeviceStream> streams) {
  if (!streams.empty()) LOCKSTEP_RETURN_IF_ERROR(gate_fault_);
  for (const DeviceStream stream : streams) {
    if (runner_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(order_.follow(stream));
    auto event = event_of(task);
    if (!event.ok()) return event.status();
    LOCKSTEP_RETURN_IF_ERROR(backend_.record(*event, stream));
  }
  task.ticket = ++issued_;  // From here on the task has to be run, or nobody would release the streams.
  held_.hold();
  for (const DeviceStream stream : streams) LOCKSTEP_RETURN_IF_ERROR(gate_->hold(stream, task.ticket));
  return streams.empty() || runner_ == nullptr ? Status() : order_.note(streams.back());
}

Result<bool> DeviceCore::is_any_captured(std::span<const DeviceStream> streams) {
  for (const DeviceStream stream : streams) {
    auto capturing = backend_.capturing(stream);
    if (!capturing.ok() || capturing.value()) return capturing;
  }
  return false;
}

/// What the thread does, and the words that streams wait for, are of this one call. Peers hear nothing: they
/// capture too, and no rank has made a call.
Status DeviceCore::refuse_capture(const DeviceTask& task) {
  const bool never = across_ != nullptr || (runs_on_stream(task) && is_carried(task));
  const Status status(
      ErrorCode::not_supported,
      never ? std::string("the stream is being captured in a graph, which cannot have calls "
                          "between hosts, nor messages of more than 32 ranks: make them outside")
            : "the stream is being captured in a graph, which mode " + std::string(name_of(decision_.mode)) +
                  " cannot replay for this operation: capture collectives in mode device_sync");
  if (!task.call) return status;
  return status.with_context("lockstep: " + internal::describe(task.call->call().facts));
}

/// The task's, until it ended.
Result<DeviceEvent> DeviceCore::event_of(DeviceTask& task) {
  auto event = events_.take();
  if (event.ok()) task.ready.push_back(*event);
  return event;
}

}  // namespace lockstep::internal
