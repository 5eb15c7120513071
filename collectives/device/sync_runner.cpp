#include "collectives/device/sync_runner.hpp"

#include <algorithm>
#include <atomic>

#include "collectives/device/device_steps.hpp"
#include "collectives/device/message_plan.hpp"
#include "collectives/device/packet_plan.hpp"
#include "collectives/device/stream_runner.hpp"

namespace lockstep::internal {
namespace {

/// An inbox is cleared once, and no call fills more of it.
constexpr std::size_t kMostInbox = 8 << 20;
/// Of a word's line: the other belongs to mode stream_sync.
constexpr std::size_t kPhaseWord = kWordStride / 2;

std::uint32_t* phase_word(std::byte* words, int writer) {
  return reinterpret_cast<std::uint32_t*>(words + static_cast<std::size_t>(writer) * kWordStride +
                                          kPhaseWord);
}

bool is_phase(const Step& step) { return step.kind == StepKind::publish || step.kind == StepKind::await; }

}  // namespace

InboxShare inbox_share(std::size_t staging_bytes, int world) {
  if (world < 2 || world > sync::kMaxPacketRanks) return {};
  constexpr std::size_t kUnit = 4096;
  const std::size_t bytes = std::min(kMostInbox, staging_bytes / 4 / kUnit * kUnit);
  const std::uint64_t slots = 4u * static_cast<std::uint64_t>(world);
  const std::uint64_t each = (bytes - sync::token_bytes(world)) / slots;
  return {bytes, each / sizeof(sync::Packet) * sizeof(sync::Packet)};
}

Result<std::unique_ptr<SyncRunner>> SyncRunner::make(Backend& backend, int device, SyncAreas areas,
                                                     bool opens, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(sync::load(backend, sync::Kernels::all));
  std::unique_ptr<SyncRunner> runner(new SyncRunner(backend, std::move(areas), opens));
  auto counters = backend.allocate(device, sizeof(Counters));
  if (!counters.ok()) return counters.status();
  runner->counters_ = static_cast<Counters*>(*counters);
  auto signals = backend.allocate_pinned(sizeof(Signals));
  if (!signals.ok()) return signals.status();
  runner->signals_ = static_cast<Signals*>(*signals);
  LOCKSTEP_RETURN_IF_ERROR(backend.fill(runner->counters_, 0, sizeof(Counters), stream));
  LOCKSTEP_RETURN_IF_ERROR(backend.synchronize(stream));
  return runner;
}

SyncRunner::~SyncRunner() {
  if (counters_ != nullptr) static_cast<void>(backend_.free(counters_));
  if (signals_ != nullptr) static_cast<void>(backend_.free_pinned(signals_));
}

Status SyncRunner::enqueue(const Call& call, DeviceStream stream) {
  set_shape(shape_, call, areas_.rank, areas_.world());
  if (areas_.world() == 1) return enqueue_alone(backend_, call, stream);
  if (const auto packets = plan_packets(call.facts, shape_, areas_.slot_bytes, areas_.packet_blocks))
    return enqueue_packets(*packets, call, stream);
  return enqueue_program(call, stream);
}

Status SyncRunner::enqueue_packets(sync::PacketArguments packets, const Call& call, DeviceStream stream) {
  packets.input = static_cast<const std::byte*>(call.input);
  packets.output = static_cast<std::byte*>(call.output);
  packets.factor = call.scale;
  packets.device_factor = call.device_scale;
  std::copy(areas_.inboxes.begin(), areas_.inboxes.end(), packets.inboxes);
  packets.slot_bytes = areas_.slot_bytes;
  packets.epochs = counters_->epochs;
  packets.bounds = bounds(static_cast<std::uint64_t>(call.timeout));
  return sync::start(backend_, packets, stream);
}

Status SyncRunner::enqueue(std::span<const DeviceMessage> messages, Nanos timeout, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(copy_own(messages, stream));
  if (areas_.world() == 1) return {};
  auto plan = plan_messages(messages, areas_.rank, areas_.world(), message_slot_bytes());
  if (!plan.ok()) return plan.status();
  if (plan->lists == 0) return {};
  plan->counters = &counters_->messages;
  plan->sizes = &signals_->sizes;
  plan->bounds = bounds(static_cast<std::uint64_t>(timeout));
  std::copy(areas_.messages.begin(), areas_.messages.end(), plan->areas);
  return sync::start(backend_, *plan, stream);
}

/// What this rank sends to itself: the k-th send meets the k-th receive.
Status SyncRunner::copy_own(std::span<const DeviceMessage> messages, DeviceStream stream) {
  const auto next = [&](std::size_t from, bool is_send) {
    while (from < messages.size() &&
           (messages[from].peer != areas_.rank || messages[from].is_send != is_send))
      ++from;
    return from;
  };
  std::size_t send = next(0, true), receive = next(0, false);
  for (; send < messages.size(); send = next(send + 1, true), receive = next(receive + 1, false)) {
    const DeviceMessage &source = messages[send], &target = messages[receive];
    if (source.bytes != target.bytes)
      return Status(ErrorCode::mismatch,
                    "rank " + std::to_string(areas_.rank) + " sends " + std::to_string(source.bytes) +
                        " bytes to itself, but receives " + std::to_string(target.bytes));
    if (source.bytes > 0 && source.buffer != target.buffer)
      LOCKSTEP_RETURN_IF_ERROR(backend_.copy(target.buffer, source.buffer, source.bytes, stream));
  }
  return {};
}

Status SyncRunner::enqueue_program(const Call& call, DeviceStream stream) {
  shape_.staging = areas_.staging_bytes / size_of(call.facts.type);
  Buffers buffers = buffers_of(call, areas_.rank);
  std::optional<WindowUse> windows;
  auto algorithm = choose(call, shape_, windows, buffers);
  if (!algorithm.ok()) return algorithm.status();
  const auto program = programs_.get(**algorithm, shape_);
  buffers.member_staging = areas_.staging.data();
  const Combine combine = combine_of(call, areas_.world(), **algorithm);
  const std::span<const Step> steps(program->program.lanes.front().steps);
  sync::PhaseArguments phase = phase_arguments(static_cast<std::uint64_t>(call.timeout));
  phase.bounds.holds = windows.has_value();  // Until the worker has closed them.
  if (opens_ && !windows) {
    phase.publish = phase.await = phase.advance = 1;
    LOCKSTEP_RETURN_IF_ERROR(sync::start(backend_, phase, stream));
    phase.advance = 0;
  }
  for (std::size_t next = 0; next < steps.size();) {
    if (is_phase(steps[next])) {
      LOCKSTEP_RETURN_IF_ERROR(
          enqueue_phases(phase, steps, next, stream, windows ? program->program.phases : 0));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(
          enqueue_step(backend_, stream, program->program, steps[next++], buffers, combine, guard()));
    }
  }
  if (windows) return {};  // Staging memory was not used.
  phase.publish = phase.await = phase.advance = program->program.phases + 1;
  phase.awaited = -1;
  return sync::start(backend_, phase, stream);
}

/// A publish and the await behind it are one kernel. The last one raises the base by `advance`.
Status SyncRunner::enqueue_phases(sync::PhaseArguments& phase, std::span<const Step> steps, std::size_t& next,
                                  DeviceStream stream, std::uint32_t advance) {
  phase.publish = phase.await = 0;
  phase.awaited = -1;
  if (steps[next].kind == StepKind::publish) phase.publish = steps[next++].phase;
  if (next < steps.size() && steps[next].kind == StepKind::await) {
    phase.await = steps[next].phase;
    phase.awaited = steps[next++].peer;
  }
  phase.advance = next == steps.size() ? advance : 0;
  return sync::start(backend_, phase, stream);
}

sync::PhaseArguments SyncRunner::phase_arguments(std::uint64_t limit) const {
  sync::PhaseArguments phase{};
  phase.rank = areas_.rank;
  phase.world = areas_.world();
  for (int member = 0; member < areas_.world(); ++member)
    phase.told[member] = phase_word(areas_.words[static_cast<std::size_t>(member)], areas_.rank);
  phase.heard = phase_word(areas_.words[static_cast<std::size_t>(areas_.rank)], 0);
  phase.stride = kWordStride / sizeof(std::uint32_t);
  phase.base = &counters_->base;
  phase.awaited = -1;
  phase.bounds = bounds(limit);
  return phase;
}

sync::SpinBounds SyncRunner::bounds(std::uint64_t limit) const {
  return {&signals_->abort, &signals_->report, limit, signals_->left};
}

Status SyncRunner::let_pass(DeviceStream) {
  std::atomic_ref(signals_->abort).store(1, std::memory_order_release);
  return {};
}

void SyncRunner::note_left(int member) {
  std::atomic_ref(signals_->left[member / 32]).fetch_or(1u << member % 32, std::memory_order_release);
}

std::optional<CallTrouble> SyncRunner::trouble() const {
  const std::uint32_t report = std::atomic_ref(signals_->report).load(std::memory_order_acquire);
  const sync::Report::Why why = sync::Report::why(report);
  const int member = sync::Report::awaited(report);
  if (why == sync::Report::Why::late) return CallTrouble{.member = member, .is_late = true};
  if (why == sync::Report::Why::left) return CallTrouble{.member = member, .has_left = true};
  if (why == sync::Report::Why::sizes)
    return CallTrouble{.member = member, .sent = signals_->sizes.sent, .expected = signals_->sizes.expected};
  return std::nullopt;
}

}  // namespace lockstep::internal
