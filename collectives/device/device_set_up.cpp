// How DeviceParts are made, part by part.
#include <algorithm>
#include <mutex>
#include <utility>

#include "collectives/device/device_domain.hpp"
#include "collectives/device/device_parts.hpp"
#include "collectives/device/exchange.hpp"
#include "collectives/make_transport.hpp"
#include "lib/base/hash.hpp"
#include "transports/shm/shm_transport.hpp"

namespace lockstep::internal {
namespace {

using Areas = std::vector<std::byte*>;  ///< Of all members as this rank's device addresses them.

/// Keeps the group that carries a DeviceCommunicator's phases apart from its control group.
constexpr std::uint64_t kDeviceGroup = 0x6465766963650001, kFarGroup = 0x6465766963650002,
                        kStraightGroup = 0x6465766963650003;

/// Device memory in which the messages of a rank wait for their receivers.
constexpr std::size_t message_area_bytes(std::size_t staging_bytes) { return staging_bytes / 2; }

/// Pinned memory for staged collectives between hosts.
constexpr std::size_t pinned_bytes(std::size_t staging_bytes) { return staging_bytes / 2; }

/// Packets are for kernels that wait: in calls, or in graphs.
InboxShare packets_of(const ModeDecision& decision, int world) {
  const bool in_graphs = decision.mode == DeviceMode::stream_sync && decision.kernels_may_wait;
  if (decision.mode != DeviceMode::device_sync && !in_graphs) return {};
  return inbox_share(decision.staging_bytes, world);
}

/// Of every rank its number among those of this host, or -1.
std::vector<int> near_ranks(const CommunicatorCore& all, const CommunicatorCore& near) {
  std::vector<int> numbers;
  for (int rank = 0; rank < all.size(); ++rank) numbers.push_back(all.number_in(near, rank));
  return numbers;
}

/// Where all members' areas have what begins at `offset`; nothing in a group of one.
std::vector<std::byte*> in_areas(const Areas& areas, std::size_t offset) {
  std::vector<std::byte*> places;
  for (std::byte* const area : areas) places.push_back(area + offset);
  return places;
}

// ---- of this rank ----

/// Where kernels wait, each rank's on a device of its own, no stream has to go on beside another: only what
/// the thread does in their place is refused then. In stream_sync a failure could not let the streams pass.
Status make_gate(DeviceParts& parts) {
  auto gate = StreamGate::make(parts.backend, parts.device);
  if (!gate.ok()) return gate.status();
  parts.gate = std::move(*gate);
  const ModeDecision& decision = parts.decision;
  const bool dispensable = decision.mode == DeviceMode::device_sync && !decision.devices_are_shared;
  parts.gate_fault =
      parts.gate->probe(parts.stream, dispensable ? StreamGate::kShortProbe : StreamGate::kLongProbe);
  return dispensable ? Status() : parts.gate_fault;
}

Status make_area(DeviceParts& parts) {
  Backend& backend = parts.backend;
  const SharedArea& shared = parts.shared;
  auto memory = backend.allocate(parts.device, whole_legacy_blocks(shared.bytes));
  if (!memory.ok()) return memory.status();
  parts.area = static_cast<std::byte*>(*memory);
  LOCKSTEP_RETURN_IF_ERROR(backend.fill(parts.area, 0, shared.staging, parts.stream));
  const std::size_t words =
      std::min<std::size_t>(shared.message_bytes(), sync::message_word_bytes(parts.groups.near->size()));
  LOCKSTEP_RETURN_IF_ERROR(backend.fill(parts.area + shared.messages, 0, words, parts.stream));
  LOCKSTEP_RETURN_IF_ERROR(backend.synchronize(parts.stream));
  LOCKSTEP_RETURN_IF_ERROR(parts.buffers->add(parts.area, shared.bytes));
  if (parts.buffers->find(parts.area, 1).owner != 0) return {};
  return Status(ErrorCode::not_supported, "the memory of device " + std::to_string(parts.device) +
                                              " cannot be shared between processes");
}

/// What this rank needs for itself. One rank of a process after the other: while a stream waits in the gate's
/// probe, the driver may keep another's allocation, and that one keeps the driver from the probe. (What other
/// communicators do meanwhile, which are made at the same time, may still fail the probe by name.)
Status make_own(DeviceParts& parts) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  LOCKSTEP_RETURN_IF_ERROR(parts.backend.prepare(parts.device));
  auto stream = parts.backend.create_stream(Backend::Priority::high);
  if (!stream.ok()) return stream.status();
  parts.stream = *stream;
  LOCKSTEP_RETURN_IF_ERROR(make_gate(parts));
  const EngineGroup& near = parts.groups.near->engine().group();
  parts.buffers = std::make_unique<SharedBuffers>(parts.backend, parts.device, near.members);
  return near.size() > 1 ? make_area(parts) : Status();
}

// ---- with the ranks of this host ----

/// `told`: where the areas of all lie, by member.
Result<Areas> map_areas(DeviceParts& parts, const std::vector<SegmentRef>& told) {
  const EngineGroup& near = parts.groups.near->engine().group();
  Areas areas;
  for (int member = 0; member < near.size() && near.size() > 1; ++member) {
    const SegmentRef& there = told[static_cast<std::size_t>(member)];
    Result<std::byte*> area = parts.area;
    if (member != near.rank) area = parts.buffers->resolve(member, there, parts.shared.bytes, true);
    if (!area.ok()) return area.status();
    areas.push_back(*area);
  }
  return areas;
}

/// Null in a group of one.
Result<std::unique_ptr<Transport>> make_domain(DeviceParts& parts, const Areas& areas,
                                               std::chrono::milliseconds timeout) {
  const EngineGroup& near = parts.groups.near->engine().group();
  if (near.size() == 1) return std::unique_ptr<Transport>();
  auto host = make_shm_transport(hash_combine(near.id, kDeviceGroup), near.rank, near.members, timeout,
                                 real_env(), {}, parts.groups.control->still_wanted());
  if (!host.ok()) return host.status();
  return make_device_transport(std::move(*host), in_areas(areas, parts.shared.staging),
                               parts.shared.staging_bytes(), *parts.buffers);
}

Status make_runners(DeviceParts& parts, const Areas& areas) {
  const ModeDecision& decision = parts.decision;
  if (decision.mode == DeviceMode::host_sync) return {};
  const SharedArea& shared = parts.shared;
  const auto staging = in_areas(areas, shared.staging);
  StreamAreas streams{parts.groups.near->rank(), areas, staging, shared.staging_bytes()};
  if (areas.empty()) streams.words = {nullptr};  // In a group of one, where nothing waits.
  const bool streams_wait = decision.mode == DeviceMode::stream_sync;
  if (!streams_wait || decision.kernels_may_wait) {
    SyncAreas kernels{streams.rank,
                      streams.words,
                      in_areas(areas, shared.inbox),
                      shared.packets.slot_bytes,
                      staging,
                      shared.staging_bytes(),
                      in_areas(areas, shared.messages),
                      shared.message_bytes(),
                      decision.packet_blocks};
    auto waiting =
        SyncRunner::make(parts.backend, parts.device, std::move(kernels), streams_wait, parts.stream);
    if (!waiting.ok()) return waiting.status();
    parts.sync_runner = std::move(*waiting);
    // What passes between hosts is of one call, and a kernel reaches no message there.
    if (!decision.several_hosts) parts.capturer = parts.sync_runner.get();
    if (parts.capturer != nullptr && parts.capturer->carries_messages()) parts.carrier = parts.capturer;
  }
  if (streams_wait)
    parts.stream_runner =
        std::make_unique<StreamRunner>(parts.backend, std::move(streams), decision.take_turns);
  parts.runner = streams_wait ? static_cast<CallRunner*>(parts.stream_runner.get()) : parts.sync_runner.get();
  return {};
}

/// Of calls that use windows.
Status make_guard(DeviceParts& parts, const Areas& areas) {
  const EngineGroup& near = parts.groups.near->engine().group();
  if (near.size() == 1 || near.size() > sync::kMaxPhaseRanks) return {};
  auto guard = WriteGuard::make(
      parts.backend, parts.device, near.rank, areas,
      [all = near.members](int member) { return has_ended(all[static_cast<std::size_t>(member)]); });
  if (!guard.ok()) return guard.status();
  parts.steps->set_guard(std::move(*guard));
  for (CallRunner* const runner : {parts.runner, static_cast<CallRunner*>(parts.capturer)}) {
    if (runner != nullptr) runner->use_windows(parts.windows, *parts.steps->guard());
  }
  return {};
}

/// Where messages from and to other hosts pass, and what carries them.
Status open_far_mail(DeviceParts& parts, MessageAreas& messages, std::chrono::milliseconds timeout) {
  const bool straight = parts.decision.straight;
  auto memory = straight ? TransitMemory::on_device(parts.backend, parts.device, messages.bytes)
                         : TransitMemory::pinned(parts.backend, messages.bytes);
  if (!memory.ok()) return memory.status();
  parts.far_mail = std::move(*memory);
  messages.far = {parts.far_mail->data(), parts.far_mail->bytes()};
  if (!straight) return {};
  CommunicatorCore& all = *parts.groups.control;
  EngineGroup group = all.engine().group();
  group.id = hash_combine(group.id, kStraightGroup);
  auto transport = make_device_links(all.world(), group, all.world_ranks(), payloads_of(parts.backend),
                                     timeout, all.still_wanted());
  if (!transport.ok()) return transport.status();
  parts.groups.straight = all.on_memory(group.name + "/straight", std::move(*transport), parts.no_memory);
  messages.straight = &parts.groups.straight->engine();
  return {};
}

Status make_messenger(DeviceParts& parts, const Areas& areas, std::chrono::milliseconds timeout) {
  DeviceGroups& groups = parts.groups;
  MessageAreas messages;
  messages.near = near_ranks(*groups.control, *groups.near);
  messages.by_member = in_areas(areas, parts.shared.messages);
  messages.bytes = parts.shared.message_bytes();
  if (groups.have_several_hosts()) LOCKSTEP_RETURN_IF_ERROR(open_far_mail(parts, messages, timeout));
  if (parts.sync_runner != nullptr && parts.carrier == nullptr) {
    auto courier =
        Courier::make(parts.backend, parts.device, parts.stream, [&groups] { return !groups.ended().ok(); });
    if (!courier.ok()) return courier.status();
    parts.courier = std::move(*courier);
    messages.lends = false;
  }
  parts.copier = std::make_unique<StreamCopier>(parts.backend, parts.stream);
  Copier& copier = parts.courier != nullptr ? static_cast<Copier&>(*parts.courier) : *parts.copier;
  parts.messenger = std::make_unique<DeviceMessenger>(copier, groups.control->engine(), *parts.buffers,
                                                      std::move(messages));
  auto marks = StreamMarks::make(parts.backend);
  if (!marks.ok()) return marks.status();
  parts.marks = std::move(*marks);
  return {};
}

Status meet_near(DeviceParts& parts, const std::vector<SegmentRef>& told, std::chrono::milliseconds timeout) {
  DeviceGroups& groups = parts.groups;
  parts.steps = std::make_unique<DeviceSteps>(parts.backend, parts.device, parts.stream, *parts.buffers,
                                              parts.decision.take_turns);
  auto areas = map_areas(parts, told);
  if (!areas.ok()) return areas.status();
  auto domain = make_domain(parts, *areas, timeout);
  if (!domain.ok()) return domain.status();
  LOCKSTEP_RETURN_IF_ERROR(make_runners(parts, *areas));
  LOCKSTEP_RETURN_IF_ERROR(make_guard(parts, *areas));
  const std::string name = groups.near->engine().group().name + "/device";
  groups.collectives = groups.near->on_memory(name, std::move(*domain), *parts.steps);
  // In host_sync calls that the engine on devices runs would write over what is told there.
  CommunicatorCore& tells = parts.runner != nullptr ? *groups.collectives : *groups.near;
  if (parts.runner != nullptr || groups.have_several_hosts())
    parts.stream_calls.emplace(tells.engine(), groups.control->engine().group(), parts.windows);
  return make_messenger(parts, *areas, timeout);
}

// ---- with all ranks ----

/// What meet_near made becomes that of this host; above it stands what all ranks do.
Status connect_hosts(DeviceParts& parts, std::chrono::milliseconds timeout) {
  DeviceGroups& groups = parts.groups;
  CommunicatorCore& all = *groups.control;
  const std::size_t pinned = pinned_bytes(parts.decision.staging_bytes);
  auto across = AcrossHosts::make(parts.backend, parts.stream, all, groups.collectives, pinned);
  if (!across.ok()) return across.status();
  parts.across = std::move(*across);
  groups.of_hosts = parts.across->groups();
  if (groups.straight != nullptr) {
    auto calls = StraightCalls::make(parts.backend, parts.device, parts.stream, *parts.messenger, pinned);
    if (!calls.ok()) return calls.status();
    parts.across->go_straight(std::move(*calls));
  }
  EngineGroup group = all.engine().group();
  group.id = hash_combine(group.id, kFarGroup);
  auto transport = make_transport(all.world(), group, all.world_ranks(), timeout, all.still_wanted());
  if (!transport.ok()) return transport.status();
  groups.collectives = all.on_memory(group.name + "/devices", std::move(*transport), parts.no_memory);
  return parts.runner != nullptr ? parts.marks->try_out(parts.stream) : Status();
}

}  // namespace

PayloadMemory payloads_of(const Backend& backend) {
  return backend.is_host() ? PayloadMemory::host_device : PayloadMemory::cuda;
}

SharedArea::SharedArea(const ModeDecision& decision, int world)
    : packets(packets_of(decision, world)),
      inbox(word_bytes(world)),
      staging(inbox + packets.bytes),
      messages(inbox + decision.staging_bytes),
      bytes(messages + message_area_bytes(decision.staging_bytes)) {}

/// Every step ends with the same result on all ranks, so that none is left waiting.
Status DeviceParts::set_up(std::chrono::milliseconds timeout) {
  const DeviceScope scope(backend, device);
  LOCKSTEP_RETURN_IF_ERROR(agree(*groups.control, scope.status().ok() ? make_own(*this) : scope.status()));
  // Where this rank's memory lies is told once all have theirs.
  auto told = exchange_records(*groups.near, buffers->find(area, 1));
  if (!told.ok()) return told.status();
  LOCKSTEP_RETURN_IF_ERROR(agree(*groups.control, meet_near(*this, *told, timeout)));
  return groups.have_several_hosts() ? agree(*groups.control, connect_hosts(*this, timeout)) : Status();
}

}  // namespace lockstep::internal
