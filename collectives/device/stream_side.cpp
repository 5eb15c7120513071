#include "collectives/device/stream_side.hpp"

#include <utility>

#include "collectives/device/message_plan.hpp"

namespace lockstep::internal {

bool StreamSide::run(const DeviceTask& task) const {
  if (runner_ == nullptr) return false;
  if (!is_of_messages(task)) return true;
  return (carrier_ != nullptr || courier_ != nullptr) && (task.call || !task.messages.empty());
}

/// Then a call of the program that blocks in the driver keeps nothing from the worker's part in this call, or
/// in one behind it.
/// Elsewhere events tell it, so that device_sync on one host needs no stream memory operations.
bool StreamSide::sees_by_marks() const { return courier_ != nullptr || across_ != nullptr; }

/// The worker has a part in it: the network's, or to tell the courier what to copy.
bool StreamSide::is_carried(const DeviceTask& task) const {
  return is_of_messages(task) ? courier_ != nullptr : across_ != nullptr;
}

Status StreamSide::hold(DeviceTask& task, Streams streams) {
  if (!streams.empty()) LOCKSTEP_RETURN_IF_ERROR(parts_.gate_fault);
  for (const DeviceStream stream : streams) {
    if (runner_ != nullptr) LOCKSTEP_RETURN_IF_ERROR(order_.follow(stream));
    auto event = event_of(task);
    if (!event.ok()) return event.status();
    LOCKSTEP_RETURN_IF_ERROR(backend_.record(*event, stream));
  }
  task.ticket = gate_.next_ticket();  // From here on it has to be run, or nobody would release the streams.
  held_.hold();
  if (task.call && runner_ == nullptr && stream_calls_) task.noted = stream_calls_->note(task.call->call());
  for (const DeviceStream stream : streams) LOCKSTEP_RETURN_IF_ERROR(gate_.hold(stream, task.ticket));
  return streams.empty() || runner_ == nullptr ? Status() : order_.note(streams.back());
}

Status StreamSide::start(const std::shared_ptr<DeviceTask>& task, Streams streams) {
  LOCKSTEP_RETURN_IF_ERROR(prepare_watch(*task, streams));
  held_.hold();
  worker_.push(task);
  Status status = enqueue_watched(*task, streams);
  WatchedCall& watched = *task->watched;
  if (status.ok()) stream_calls_->tell_enqueued(*task);
  watched.refusal = status;
  watched.stage.store(status.ok() ? WatchedCall::Stage::enqueued : WatchedCall::Stage::refused,
                      std::memory_order_release);
  if (status.ok()) return status;
  status = status.with_context("lockstep: " + name_of(*task));
  if (watched.is_carried) end_carried(status);
  return status;
}

/// The worker may be waiting for what the stream will not do.
void StreamSide::end_carried(const Status& why) {
  end_.fail(why);
  if (courier_ != nullptr) courier_->let_pass();
}

Status StreamSide::prepare_watch(DeviceTask& task, Streams streams) {
  LOCKSTEP_RETURN_IF_ERROR(order_.follow(streams.front()));
  LOCKSTEP_RETURN_IF_ERROR(join(task, streams));
  auto watched = std::make_unique<WatchedCall>();
  watched->is_marked = sees_by_marks();
  LOCKSTEP_RETURN_IF_ERROR(watched->is_marked ? book(task, *watched)
                                              : note_begin(task, *watched, streams.front()));
  auto end = event_of(task);
  if (!end.ok()) return end.status();
  watched->end = *end;
  if (task.call) task.noted = stream_calls_->note(task.call->call());
  task.watched = std::move(watched);
  return {};
}

Status StreamSide::note_begin(DeviceTask& task, WatchedCall& watched, DeviceStream stream) {
  auto begin = event_of(task);
  if (!begin.ok()) return begin.status();
  watched.begin = *begin;
  return backend_.record(*begin, stream);
}

Status StreamSide::book(const DeviceTask& task, WatchedCall& watched) {
  watched.mark = marks_.next_number();
  watched.is_carried = is_carried(task);
  if (!watched.is_carried || is_of_messages(task)) return {};
  auto booking = across_->book(task.call->call());
  if (booking.ok()) watched.hosts = std::move(*booking);
  return booking.status();
}

/// The end is noted also where only some of it is enqueued.
Status StreamSide::enqueue_watched(DeviceTask& task, Streams streams) {
  const DeviceStream stream = streams.front();
  const WatchedCall& watched = *task.watched;
  Status status = watched.is_marked ? marks_.enqueue_begin(watched.mark, stream) : Status();
  if (status.ok()) status = run_in_stream(*runner_, task, stream);
  Status ended = backend_.record(watched.end, stream);
  if (ended.ok() && watched.is_marked) ended = marks_.enqueue_end(watched.mark, stream);
  LOCKSTEP_RETURN_IF_ERROR(status);
  LOCKSTEP_RETURN_IF_ERROR(ended);
  for (const DeviceStream other : streams.subspan(1))
    LOCKSTEP_RETURN_IF_ERROR(backend_.wait_event(other, watched.end));
  return order_.note(stream);
}

/// The first stream goes on when the others have come here.
Status StreamSide::join(DeviceTask& task, Streams streams) {
  for (const DeviceStream other : streams.subspan(1)) {
    auto here = event_of(task);
    if (!here.ok()) return here.status();
    LOCKSTEP_RETURN_IF_ERROR(backend_.record(*here, other));
    LOCKSTEP_RETURN_IF_ERROR(backend_.wait_event(streams.front(), *here));
  }
  return {};
}

Status StreamSide::run_in_stream(CallRunner& runner, const DeviceTask& task, DeviceStream stream) {
  if (is_of_messages(task) && courier_ != nullptr) return courier_->enqueue(stream);
  if (!task.call) return carrier_->enqueue(task.messages, task.timeout, stream);
  const Call& call = task.call->call();
  if (passes_as_messages(call.facts.collective))
    return carrier_->enqueue(messages_of(call, group_.rank, group_.size()), call.timeout, stream);
  if (task.copy_from != nullptr && call.output_elements > 0)
    LOCKSTEP_RETURN_IF_ERROR(
        backend_.copy(call.output, task.copy_from, call.output_elements * size_of(call.facts.type), stream));
  return across_ != nullptr ? across_->enqueue(*task.watched->hosts, call, runner, stream)
                            : runner.enqueue(call, stream);
}

/// The task's, until it ended.
Result<DeviceEvent> StreamSide::event_of(DeviceTask& task) {
  auto event = events_.take();
  if (event.ok()) task.ready.push_back(*event);
  return event;
}

// ---- graphs ----

Result<bool> StreamSide::is_any_captured(Streams streams) const {
  for (const DeviceStream stream : streams) {
    auto capturing = backend_.capturing(stream);
    if (!capturing.ok() || capturing.value()) return capturing;
  }
  return false;
}

bool StreamSide::can_be_captured(const DeviceTask& task) const {
  return run(task) && capturer_ != nullptr && !is_carried(task);
}

Status StreamSide::record_in_graph(DeviceTask& task, Streams streams) {
  if (streams.size() > 1)
    return Status(
        ErrorCode::not_supported,
        "a batch of messages that is captured in a graph names one stream: others are joined to it by "
        "events of the caller");
  if (task.call) stream_calls_->note(task.call->call());
  LOCKSTEP_RETURN_IF_ERROR(run_in_stream(*capturer_, task, streams.front()));
  task.recorded = true;
  if (end_.note_recorded()) worker_.look_when_idle();
  return {};
}

Status StreamSide::refuse_capture(const DeviceTask& task) const {
  const bool never = across_ != nullptr || (run(task) && is_carried(task));
  const std::string mode(name_of(parts_.decision.mode));
  const Status status(
      ErrorCode::not_supported,
      never ? std::string("the stream is being captured in a graph, which cannot have calls "
                          "between hosts, nor messages of more than 32 ranks: make them outside")
            : "the stream is being captured in a graph, which mode " + mode +
                  " cannot replay for this operation: capture collectives in mode device_sync");
  if (!task.call) return status;
  return status.with_context("lockstep: " + internal::describe(task.call->call().facts));
}

}  // namespace lockstep::internal
