#include "collectives/device/caller_side.hpp"

#include <algorithm>
#include <utility>

#include "collectives/device/buffer_check.hpp"
#include "collectives/device/message_plan.hpp"

namespace lockstep::internal {
namespace {

bool are_several_here(const std::vector<Member>& members) {
  const auto here = [](const Member& one) { return one.process == process_token(); };
  return std::count_if(members.begin(), members.end(), here) > 1;
}

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

CallerSide::CallerSide(DeviceParts& parts, DeviceEnd& end, DeviceWorker& worker)
    : parts_(parts),
      end_(end),
      worker_(worker),
      has_ranks_beside_(are_several_here(groups_.control->engine().group().members)) {}

Status CallerSide::start(CallBuilder builder, Stream stream, const DeviceCallOptions& options,
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

Status CallerSide::start(std::vector<DeviceMessage> messages, const DeviceCallOptions& options) {
  const DeviceScope scope(backend_, device_);
  LOCKSTEP_RETURN_IF_ERROR(scope.status());
  LOCKSTEP_RETURN_IF_ERROR(check_messages(backend_, device_, groups_.control->rank(), messages));
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

Status CallerSide::enqueue(const std::shared_ptr<DeviceTask>& task, Streams streams) {
  const std::lock_guard lock(order_mutex_);
  if (Status status = end_.failure(); !status.ok()) return status;
  if (end_.is_finished())
    return Status(ErrorCode::aborted, "lockstep: the communicator was finalized on this rank");
  if (groups_.engine().state() != ErrorCode::ok || groups_.control->engine().state() != ErrorCode::ok)
    return end_.known_state();
  const auto captured = streams_.is_any_captured(streams);
  if (captured.ok() && captured.value() && !streams_.can_be_captured(*task))
    return streams_.refuse_capture(*task);
  const SharedStreams::Turn turn(numbers_of(streams));
  Status refusal = find_refusal(*task, captured, streams);
  if (!refusal.ok()) return push_refused(task, std::move(refusal));
  if (!streams_.run(*task)) {
    refusal = streams_.hold(*task, streams);
  } else {
    if (!task->call && parts_.carrier != nullptr)
      LOCKSTEP_RETURN_IF_ERROR(fit_one_kernel(task->messages, groups_.control->rank()));
    refusal = captured.value() ? streams_.record_in_graph(*task, streams) : streams_.start(task, streams);
    if (task->watched != nullptr || task->recorded) return refusal;
  }
  if (!refusal.ok()) return push_refused(task, std::move(refusal));
  worker_.push(task);
  return {};
}

/// What is wrong with it, before anything of it is in a stream. Counts the calls.
Status CallerSide::find_refusal(DeviceTask& task, const Result<bool>& captured, Streams streams) {
  if (!task.call) return captured.status();
  ++calls_;
  const Call& call = task.call->build();
  LOCKSTEP_RETURN_IF_ERROR(call.refusal);
  LOCKSTEP_RETURN_IF_ERROR(captured.status());
  return captured.value() ? Status() : check_stream(call, streams.front());
}

/// For ranks of this process. A stream without a number is refused by what is put in it.
std::vector<SharedStreams::Stream> CallerSide::numbers_of(Streams streams) const {
  std::vector<SharedStreams::Stream> numbers;
  if (!has_ranks_beside_) return numbers;
  for (const DeviceStream stream : streams) {
    if (const auto number = backend_.stream_number(stream); number.ok())
      numbers.emplace_back(device_, number.value());
  }
  return numbers;
}

/// Of the calls in which no rank can go on before all have come.
Status CallerSide::check_stream(const Call& call, DeviceStream stream) {
  if (!waits_for_all(call) || !has_ranks_beside_) return {};
  const auto number = backend_.stream_number(stream);
  if (!number.ok()) return number.status();
  const EngineGroup& group = groups_.control->engine().group();
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
Status CallerSide::push_refused(const std::shared_ptr<DeviceTask>& task, Status refusal) {
  if (task->call) {
    task->call->refuse(refusal.code(), refusal.message());
    refusal = refusal.with_context("lockstep: " + internal::describe(task->call->build().facts));
  } else if (task->ticket == 0) {
    parts_.events.give_back(task->ready);
    return refusal;
  } else {
    task->refusal = refusal;
  }
  worker_.push(task);
  return refusal;
}

}  // namespace lockstep::internal
