// From a call to a task of the worker, with the caller's streams waiting for it.
#include <utility>

#include "collectives/device/device_core.hpp"

namespace lockstep::internal {

namespace {

Status check_messages(Backend& backend, std::span<const DeviceMessage> messages, int self) {
  int own_sends = 0, own_receives = 0;
  for (const DeviceMessage& message : messages) {
    if (message.peer == self) ++(message.is_send ? own_sends : own_receives);
    if (message.bytes == 0) continue;
    auto place = backend.locate(message.buffer);
    if (!place.ok()) return place.status();
    if (place->space == MemorySpace::unregistered)
      return Status(ErrorCode::invalid_argument,
                    std::string(message.is_send ? "the sent" : "the receiving") +
                        " buffer is not memory of a device: use a Communicator for host memory");
  }
  if (own_sends == own_receives) return {};
  return Status(ErrorCode::invalid_argument,
                "a send to the own rank needs its receive in the same batch, and the other way round");
}

}  // namespace

Status DeviceCore::start(CallBuilder builder, Stream stream, const DeviceCallOptions& options,
                         void* copy_to) {
  DeviceTask task;
  builder.on_device(options.device_scale);
  const Call& call = builder.build();
  task.timeout = call.timeout;
  task.copy_to = copy_to;
  const std::size_t element = size_of(call.facts.type);
  check_memory(builder, "input", call.input, call.input_elements * element);
  check_memory(builder, "output", call.output, call.output_elements * element);
  if (copy_to != nullptr) check_memory(builder, "output", copy_to, call.output_elements * element);
  task.call.emplace(std::move(builder));
  return enqueue(std::move(task), {&stream, 1});
}

Status DeviceCore::start(std::vector<DeviceMessage> messages, const DeviceCallOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(check_messages(backend_, messages, control_->rank()));
  DeviceTask task;
  task.timeout = timeout_of(options);
  std::vector<DeviceStream> streams;
  for (const DeviceMessage& message : messages) {
    if (std::find(streams.begin(), streams.end(), message.stream) == streams.end())
      streams.push_back(message.stream);
  }
  task.messages = std::move(messages);
  return enqueue(std::move(task), streams);
}

/// Before anything waits on memory that its kernels could not reach.
void DeviceCore::check_memory(CallBuilder& builder, const char* which, const void* pointer,
                              std::uint64_t bytes) {
  if (bytes == 0 || pointer == nullptr) return;
  const auto place = backend_.locate(pointer);
  if (!place.ok()) return builder.refuse(place.status().code(), place.status().message());
  const Allocation& memory = place.value();
  if (memory.space == MemorySpace::unregistered) {
    return builder.refuse(ErrorCode::invalid_argument,
                          std::string(which) +
                              " is not memory of a device: use a Communicator for host "
                              "memory, or allocate it with the device");
  }
  if (memory.space == MemorySpace::device && memory.device != device_) {
    return builder.refuse(ErrorCode::invalid_argument,
                          std::string(which) + " lies on device " + std::to_string(memory.device) +
                              ", but this communicator works on device " + std::to_string(device_));
  }
}

Status DeviceCore::enqueue(DeviceTask task, std::span<const DeviceStream> streams) {
  const DeviceScope scope(backend_, device_);
  const std::lock_guard lock(start_mutex_);
  if (Status status = failure(); !status.ok()) return status;
  const bool ended = engine().state() != ErrorCode::ok || control_->engine().state() != ErrorCode::ok;
  if (ended && !finalized_) return state();
  if (finalized_) return Status(ErrorCode::aborted, "lockstep: the communicator was finalized on this rank");
  Status refusal = task.call ? task.call->build().refusal : Status();
  if (refusal.ok()) refusal = runs_on_stream(task) ? start_on_stream(task, streams) : hold(task, streams);
  if (refusal.ok()) {
    if (!task.recorded) worker_->push(std::move(task));
    return {};
  }
  // The call keeps its place in the order, and the peers are told.
  if (task.call) {
    task.call->refuse(refusal.code(), refusal.message());
    refusal = refusal.with_context("lockstep: " + internal::describe(task.call->build().facts));
    worker_->push(std::move(task));
  }
  return refusal;
}

/// Notes where the streams are, and makes them wait for the task's end.
Status DeviceCore::hold(DeviceTask& task, std::span<const DeviceStream> streams) {
  for (const DeviceStream stream : streams) LOCKSTEP_RETURN_IF_ERROR(refuse_capture(stream));
  for (const DeviceStream stream : streams) {
    LOCKSTEP_RETURN_IF_ERROR(follow_last(stream));
    auto event = take_event();
    if (!event.ok()) return event.status();
    task.ready.push_back(*event);
    LOCKSTEP_RETURN_IF_ERROR(backend_.record(*event, stream));
  }
  const std::uint32_t ticket = issued_ + 1;
  for (const DeviceStream stream : streams) LOCKSTEP_RETURN_IF_ERROR(gate_->hold(stream, ticket));
  task.ticket = issued_ = ticket;
  return streams.empty() ? Status() : note_last(streams.back());
}

/// What the thread does, and the words that streams wait for, are of this one call.
Status DeviceCore::refuse_capture(DeviceStream stream) {
  auto capturing = backend_.capturing(stream);
  if (!capturing.ok()) return capturing.status();
  if (!*capturing) return {};
  return Status(ErrorCode::not_supported, "the stream is being captured in a graph, which mode " +
                                              std::string(name_of(decision_.mode)) +
                                              " cannot replay for this operation: capture "
                                              "collectives in mode device_sync");
}

Result<DeviceEvent> DeviceCore::take_event() {
  const std::lock_guard lock(state_mutex_);
  if (events_.empty()) return backend_.create_event();
  const DeviceEvent event = events_.back();
  events_.pop_back();
  return event;
}

}  // namespace lockstep::internal
