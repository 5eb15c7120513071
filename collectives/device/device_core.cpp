// Setting a DeviceCommunicator up and taking it down.
#include "collectives/device/device_core.hpp"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>

#include "collectives/device/device_domain.hpp"
#include "collectives/device/exchange.hpp"
#include "collectives/device/shared_streams.hpp"
#include "collectives/engine/group_hosts.hpp"
#include "collectives/make_transport.hpp"
#include "lib/base/config.hpp"
#include "lib/base/hash.hpp"
#include "transports/shm/shm_transport.hpp"

namespace lockstep::internal {
namespace {

/// Keeps the group that carries a DeviceCommunicator's phases apart from its control group.
constexpr std::uint64_t kDeviceGroup = 0x6465766963650001, kFarGroup = 0x6465766963650002,
                        kStraightGroup = 0x6465766963650003;

/// Device memory in which the messages of a rank wait for their receivers.
constexpr std::size_t message_area_bytes(std::size_t staging_bytes) { return staging_bytes / 2; }

/// Pinned memory for staged collectives between hosts.
constexpr std::size_t pinned_bytes(std::size_t staging_bytes) { return staging_bytes / 2; }

const char* way_between_hosts(const ModeDecision& decision) {
  return decision.straight ? "from device to device by UCX" : "through pinned memory";
}

/// The memory of the backend's devices, as a fabric is told.
PayloadMemory payloads_of(const Backend& backend) {
  return backend.is_host() ? PayloadMemory::host_device : PayloadMemory::cuda;
}

bool goes_straight(Result<Backend*>& backend, World& world) {
  if (!backend.ok() || config_text("LOCKSTEP_DEVICE_STRAIGHT") == "off") return false;
  return moves_device_memory(world, payloads_of(**backend));
}

void print_decision(const ModeDecision& decision, int ranks) {
  if (config_text("LOCKSTEP_LOG") != "info") return;
  std::fprintf(stderr, "lockstep: %d ranks on devices, mode %s (%s)\n", ranks,
               std::string(name_of(decision.mode)).c_str(), decision.reason.c_str());
  if (decision.several_hosts)
    std::fprintf(stderr, "lockstep: between hosts data pass %s\n", way_between_hosts(decision));
  if (decision.mode == DeviceMode::stream_sync && !decision.kernels_may_wait)
    std::fprintf(
        stderr,
        "lockstep: messages, scatter_v, gather_v and all_to_all_v pass by a thread of each rank as in "
        "mode host_sync\n");
}

/// Once in a process. The variable is set at the first use of CUDA, unless that came before the library's.
void warn_of_late_loading() {
  static std::once_flag once;
  if (config_text("LOCKSTEP_LOG") == "off") return;
  std::call_once(once, [] {
    std::fprintf(stderr,
                 "lockstep: kernels of this program are loaded when they are first started, which beside a "
                 "collective in mode host_sync may hang: set CUDA_MODULE_LOADING=EAGER before the process "
                 "uses CUDA, or run each kernel once before the first collective (docs/gpu.md)\n");
  });
}

/// Packets are for kernels that wait: in calls, or in graphs.
InboxShare inbox_of(const ModeDecision& decision, int world) {
  const bool in_graphs = decision.mode == DeviceMode::stream_sync && decision.kernels_may_wait;
  if (decision.mode != DeviceMode::device_sync && !in_graphs) return {};
  return inbox_share(decision.staging_bytes, world);
}

bool are_several_here(const std::vector<Member>& members) {
  const auto here = [](const Member& one) { return one.process == process_token(); };
  return std::count_if(members.begin(), members.end(), here) > 1;
}

/// Of every rank its number among those of this host, or -1.
std::vector<int> near_ranks(const CommunicatorCore& all, const CommunicatorCore& near) {
  std::vector<int> numbers(all.world_ranks().size(), -1);
  for (std::size_t n = 0; n < near.world_ranks().size(); ++n) {
    const auto found = std::find(all.world_ranks().begin(), all.world_ranks().end(), near.world_ranks()[n]);
    numbers[static_cast<std::size_t>(found - all.world_ranks().begin())] = static_cast<int>(n);
  }
  return numbers;
}

}  // namespace

DeviceCore::DeviceCore(Backend& backend, int device, std::shared_ptr<CommunicatorCore> control,
                       std::shared_ptr<CommunicatorCore> near, ModeDecision decision)
    : backend_(backend),
      device_(device),
      device_name_(backend.identify(device).value().name),
      control_(std::move(control)),
      near_(std::move(near)),
      decision_(std::move(decision)),
      inbox_(inbox_of(decision_, near_->size())),
      has_ranks_beside_(are_several_here(control_->engine().group().members)) {}

Result<std::shared_ptr<DeviceCore>> DeviceCore::make(CommunicatorCore& communicator, Result<Backend*> backend,
                                                     int device, const DeviceOptions& options) {
  std::optional<BesideCaptures> beside;
  if (backend.ok()) beside.emplace(**backend);
  auto control = communicator.split(0, communicator.rank());
  if (!control.ok()) return control.status();
  const CommunicatorCore::SetUp control_under_way(communicator, **control);
  DeviceFacts own = facts_of(backend, device, options);
  own.goes_straight = goes_straight(backend, (*control)->world()) ? 1 : 0;
  auto facts = exchange_records(**control, own);
  if (!facts.ok()) return facts.status();
  auto decision = decide_mode(*facts, (*control)->engine().group());
  if (!decision.ok()) return decision.status();
  if ((*control)->rank() == 0) print_decision(*decision, (*control)->size());
  if (decision->mode == DeviceMode::host_sync && (*backend)->loads_kernels_late()) warn_of_late_loading();
  std::shared_ptr<CommunicatorCore> near = *control;
  std::optional<CommunicatorCore::SetUp> near_under_way;
  if (decision->several_hosts) {
    const std::vector<int> hosts = hosts_of((*control)->engine().group());
    auto of_host = (*control)->split(hosts[static_cast<std::size_t>((*control)->rank())], 0);
    if (!of_host.ok()) return of_host.status();
    near = std::move(*of_host);
    near_under_way.emplace(communicator, *near);
  }
  std::shared_ptr<DeviceCore> core(new DeviceCore(**backend, device, *control, near, *decision));
  LOCKSTEP_RETURN_IF_ERROR(core->set_up(options));
  return core;
}

/// Every step ends with the same result on all ranks, so that none is left waiting.
Status DeviceCore::set_up(const DeviceOptions& options) {
  const DeviceScope scope(backend_, device_);
  auto areas = exchange_staging(scope.status());
  if (!areas.ok()) return areas.status();
  LOCKSTEP_RETURN_IF_ERROR(agree(*control_, adopt_staging(*areas, options)));
  if (near_ != control_) LOCKSTEP_RETURN_IF_ERROR(agree(*control_, connect_hosts(options)));
  worker_ = std::make_unique<DeviceWorker>(
      backend_, device_, [this](DeviceTask& task) { run(task); }, [this] { look_after_graphs(); });
  return {};
}

/// Where kernels wait, each rank's on a device of its own, no stream has to go on beside another: only what
/// the thread does in their place is refused then. In stream_sync a failure could not let the streams pass.
Status DeviceCore::make_gate() {
  auto gate = StreamGate::make(backend_, device_);
  if (!gate.ok()) return gate.status();
  gate_ = std::move(*gate);
  const bool dispensable = decision_.mode == DeviceMode::device_sync && !decision_.devices_are_shared;
  gate_fault_ = gate_->probe(stream_, dispensable ? StreamGate::kShortProbe : StreamGate::kLongProbe);
  return dispensable ? Status() : gate_fault_;
}

/// Makes what this rank needs for itself. One rank of a process after the other: while a stream waits in the
/// gate's probe, the driver may keep another's allocation, and that one keeps the driver from the probe.
/// (What other communicators do meanwhile, which are made at the same time, may still fail the probe by
/// name.)
Status DeviceCore::make_own_staging() {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  LOCKSTEP_RETURN_IF_ERROR(backend_.prepare(device_));
  auto stream = backend_.create_stream(Backend::Priority::high);
  if (!stream.ok()) return stream.status();
  stream_ = *stream;
  LOCKSTEP_RETURN_IF_ERROR(make_gate());
  buffers_ = std::make_unique<SharedBuffers>(backend_, device_, near_->engine().group().members);
  if (near_->size() == 1) return {};
  auto memory = backend_.allocate(device_, whole_legacy_blocks(area_bytes()));
  if (!memory.ok()) return memory.status();
  area_ = static_cast<std::byte*>(*memory);
  LOCKSTEP_RETURN_IF_ERROR(backend_.fill(area_, 0, word_bytes(near_->size()) + inbox_.bytes, stream_));
  const std::size_t messages = message_area_bytes(decision_.staging_bytes);
  const std::size_t words = std::min<std::size_t>(messages, sync::message_word_bytes(near_->size()));
  LOCKSTEP_RETURN_IF_ERROR(backend_.fill(area_ + area_bytes() - messages, 0, words, stream_));
  LOCKSTEP_RETURN_IF_ERROR(backend_.synchronize(stream_));
  LOCKSTEP_RETURN_IF_ERROR(buffers_->add(area_, area_bytes()));
  if (buffers_->find(area_, 1).owner != 0) return {};
  return Status(ErrorCode::not_supported,
                "the memory of device " + std::to_string(device_) + " cannot be shared between processes");
}

/// Tells the others where this rank's staging memory lies, once all have theirs.
Result<std::vector<SegmentRef>> DeviceCore::exchange_staging(const Status& entered) {
  LOCKSTEP_RETURN_IF_ERROR(agree(*control_, entered.ok() ? make_own_staging() : entered));
  return exchange_records(*near_, buffers_->find(area_, 1));
}

Status DeviceCore::adopt_staging(const std::vector<SegmentRef>& areas, const DeviceOptions& options) {
  steps_ = std::make_unique<DeviceSteps>(backend_, device_, stream_, *buffers_, decision_.take_turns);
  const EngineGroup& group = near_->engine().group();
  MessageAreas messages;
  messages.bytes = message_area_bytes(decision_.staging_bytes);
  std::unique_ptr<Transport> transport;
  std::vector<std::byte*> members, staging;
  for (int member = 0; member < group.size() && group.size() > 1; ++member) {
    Result<std::byte*> area = area_;
    if (member != group.rank)
      area = buffers_->resolve(member, areas[static_cast<std::size_t>(member)], area_bytes(), true);
    if (!area.ok()) return area.status();
    members.push_back(*area);
    staging.push_back(*area + word_bytes(group.size()) + inbox_.bytes);
    messages.by_member.push_back(staging.back() + program_staging());
  }
  if (group.size() > 1) {
    auto host = make_shm_transport(hash_combine(group.id, kDeviceGroup), group.rank, group.members,
                                   options.timeout, real_env(), {}, control_->still_wanted());
    if (!host.ok()) return host.status();
    transport = make_device_transport(std::move(*host), std::move(staging), program_staging(), *buffers_);
  }
  LOCKSTEP_RETURN_IF_ERROR(make_runners(members));
  if (group.size() > 1 && group.size() <= sync::kMaxPhaseRanks) {
    auto guard = WriteGuard::make(backend_, device_, group.rank, members, [all = group.members](int member) {
      return has_ended(all[static_cast<std::size_t>(member)]);
    });
    if (!guard.ok()) return guard.status();
    steps_->set_guard(std::move(*guard));
    for (CallRunner* const runner : {runner_, static_cast<CallRunner*>(capturer_)}) {
      if (runner != nullptr) runner->use_windows(windows_, *steps_->guard());
    }
  }
  collectives_ = near_->on_memory(group.name + "/device", std::move(transport), *steps_);
  if (runner_ != nullptr) stream_calls_.emplace(collectives_->engine(), windows_);
  messages.near = near_ranks(*control_, *near_);
  if (near_ != control_) LOCKSTEP_RETURN_IF_ERROR(open_far_mail(options, messages));
  return make_messenger(std::move(messages));
}

Status DeviceCore::make_messenger(MessageAreas messages) {
  if (sync_runner_ != nullptr && carrier_ == nullptr) {
    auto courier = Courier::make(backend_, device_, stream_, [this] { return !ended_group().ok(); });
    if (!courier.ok()) return courier.status();
    courier_ = std::move(*courier);
    messages.lends = false;
  }
  copier_ = std::make_unique<StreamCopier>(backend_, stream_);
  Copier& copier = courier_ != nullptr ? static_cast<Copier&>(*courier_) : *copier_;
  messenger_ = std::make_unique<DeviceMessenger>(copier, control_->engine(), *buffers_, std::move(messages));
  auto marks = StreamMarks::make(backend_);
  if (!marks.ok()) return marks.status();
  marks_ = std::move(*marks);
  return {};
}

/// Where messages from and to other hosts pass, and what carries them.
Status DeviceCore::open_far_mail(const DeviceOptions& options, MessageAreas& messages) {
  const std::size_t bytes = message_area_bytes(decision_.staging_bytes);
  auto memory = decision_.straight ? TransitMemory::on_device(backend_, device_, bytes)
                                   : TransitMemory::pinned(backend_, bytes);
  if (!memory.ok()) return memory.status();
  far_mail_ = std::move(*memory);
  messages.far = {far_mail_->data(), far_mail_->bytes()};
  if (!decision_.straight) return {};
  EngineGroup group = control_->engine().group();
  group.id = hash_combine(group.id, kStraightGroup);
  auto transport = make_device_links(control_->world(), group, control_->world_ranks(), payloads_of(backend_),
                                     options.timeout, control_->still_wanted());
  if (!transport.ok()) return transport.status();
  straight_ = control_->on_memory(group.name + "/straight", std::move(*transport), no_memory_);
  messages.straight = &straight_->engine();
  return {};
}

/// `areas`: those of all members; none in a group of one, where nothing waits.
Status DeviceCore::make_runners(const std::vector<std::byte*>& areas) {
  if (decision_.mode == DeviceMode::host_sync) return {};
  const int rank = near_->rank(), world = near_->size();
  StreamAreas streams{rank, areas, {}, program_staging()};
  SyncAreas kernels{rank, areas, {}, inbox_.slot_bytes, {}, program_staging(), {}, 0};
  kernels.message_bytes = message_area_bytes(decision_.staging_bytes);
  kernels.packet_blocks = decision_.packet_blocks;
  for (std::byte* const area : areas) {
    kernels.inboxes.push_back(area + word_bytes(world));
    kernels.staging.push_back(kernels.inboxes.back() + inbox_.bytes);
    kernels.messages.push_back(kernels.staging.back() + program_staging());
  }
  streams.staging = kernels.staging;
  if (world == 1) streams.words = kernels.words = {nullptr};
  const bool streams_wait = decision_.mode == DeviceMode::stream_sync;
  if (!streams_wait || decision_.kernels_may_wait) {
    auto waiting = SyncRunner::make(backend_, device_, std::move(kernels), streams_wait, stream_);
    if (!waiting.ok()) return waiting.status();
    sync_runner_ = std::move(*waiting);
    // What passes between hosts is of one call, and a kernel reaches no message there.
    if (!decision_.several_hosts) capturer_ = sync_runner_.get();
    if (capturer_ != nullptr && capturer_->carries_messages()) carrier_ = capturer_;
  }
  if (streams_wait)
    stream_runner_ = std::make_unique<StreamRunner>(backend_, std::move(streams), decision_.take_turns);
  runner_ = streams_wait ? static_cast<CallRunner*>(stream_runner_.get()) : sync_runner_.get();
  return {};
}

/// What adopt_staging made becomes that of this host; above it stands what all ranks do.
Status DeviceCore::connect_hosts(const DeviceOptions& options) {
  EngineGroup group = control_->engine().group();
  auto across =
      AcrossHosts::make(backend_, stream_, *control_, collectives_, pinned_bytes(decision_.staging_bytes));
  if (!across.ok()) return across.status();
  across_ = std::move(*across);
  if (straight_ != nullptr) {
    auto calls =
        StraightCalls::make(backend_, device_, stream_, *messenger_, pinned_bytes(decision_.staging_bytes));
    if (!calls.ok()) return calls.status();
    across_->go_straight(std::move(*calls));
  }
  group.id = hash_combine(group.id, kFarGroup);
  auto transport = make_transport(control_->world(), group, control_->world_ranks(), options.timeout,
                                  control_->still_wanted());
  if (!transport.ok()) return transport.status();
  collectives_ = control_->on_memory(group.name + "/devices", std::move(*transport), no_memory_);
  return runner_ != nullptr ? marks_->try_out(stream_) : Status();
}

std::vector<CommunicatorCore*> DeviceCore::groups() const {
  std::vector<CommunicatorCore*> groups{collectives_.get(), control_.get()};
  if (straight_ != nullptr) groups.push_back(straight_.get());
  if (across_ != nullptr) {
    for (CommunicatorCore* const group : across_->groups()) groups.push_back(group);
  }
  return groups;
}

DeviceCore::~DeviceCore() {
  const BesideCaptures beside(backend_);
  // The thread may be any. What is freed below waits for this device's streams, not for another's.
  const DeviceScope scope(backend_, device_);
  if (recorded_ && capturer_ != nullptr) static_cast<void>(capturer_->let_pass(stream_));
  SharedStreams::instance().forget({control_->engine().group().id, control_->engine().group().rank});
  if (worker_ != nullptr && have_streams_passed()) worker_->wait();
  if (worker_ != nullptr && !worker_->idle()) {  // A failure may be known here before the peers were told.
    if (const Status why = failure(); !why.ok())
      revoke(why);
    else
      abort("its DeviceCommunicator was destroyed");
  }
  worker_.reset();
  stream_runner_.reset();
  sync_runner_.reset();
  if (gate_ != nullptr) gate_->release(issued_);
  gate_.reset();
  if (collectives_ != nullptr) {
    for (CommunicatorCore* const group : groups()) group->engine().close();
  }
  control_->engine().close();
  messenger_.reset();
  courier_.reset();
  marks_.reset();
  straight_.reset();
  stream_calls_.reset();
  collectives_.reset();
  across_.reset();
  far_mail_.reset();
  steps_.reset();
  if (buffers_ != nullptr) buffers_->let_go(windows_.remove_all());
  buffers_.reset();
  events_.destroy_all();
  if (stream_ != nullptr) static_cast<void>(backend_.destroy_stream(stream_));
  order_.destroy();
  // Peers that are not through with the last call may be reading it.
  if (area_ != nullptr) DeviceExports::of(backend_).retire(area_);
}

/// Every operation so far: the caller may know that, and the worker be about to see it.
bool DeviceCore::have_streams_passed() { return gate_->has_released(issued_) && order_.has_passed(); }

std::string DeviceCore::describe() const {
  const EngineGroup& group = control_->engine().group();
  return "rank " + std::to_string(group.rank) + " of " + std::to_string(group.size()) + " on device " +
         std::to_string(device_) + " (" + device_name_ + "), mode " + std::string(name_of(decision_.mode)) +
         " (" + decision_.reason + ")" +
         (across_ != nullptr
              ? ", " + across_->describe() + ", data pass " + way_between_hosts(decision_) + " between them"
              : "");
}

std::size_t DeviceCore::area_bytes() const {
  return word_bytes(near_->size()) + decision_.staging_bytes + message_area_bytes(decision_.staging_bytes);
}

}  // namespace lockstep::internal
