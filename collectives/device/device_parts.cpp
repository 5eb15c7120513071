#include "collectives/device/device_parts.hpp"

#include <mutex>
#include <utility>

#include "collectives/device/exchange.hpp"
#include "collectives/engine/group_hosts.hpp"
#include "collectives/make_transport.hpp"
#include "lib/base/config.hpp"
#include "lib/base/log.hpp"

namespace lockstep::internal {
namespace {

const char* way_between_hosts(const ModeDecision& decision) {
  return decision.straight ? "from device to device by UCX" : "through pinned memory";
}

bool goes_straight(Result<Backend*>& backend, World& world) {
  if (!backend.ok() || config_text("LOCKSTEP_DEVICE_STRAIGHT") == "off") return false;
  return moves_device_memory(world, payloads_of(**backend));
}

void print_decision(const ModeDecision& decision, int ranks) {
  inform(std::to_string(ranks) + " ranks on devices, mode " + std::string(name_of(decision.mode)) + " (" +
         decision.reason + ")");
  if (decision.several_hosts) inform(std::string("between hosts data pass ") + way_between_hosts(decision));
  if (decision.mode == DeviceMode::stream_sync && !decision.kernels_may_wait)
    inform(
        "messages, scatter_v, gather_v and all_to_all_v pass by a thread of each rank as in mode host_sync");
}

/// Once in a process. The variable is set at the first use of CUDA, unless that came before the library's.
void warn_of_late_loading() {
  static std::once_flag once;
  std::call_once(once, [] {
    warn(
        "kernels of this program are loaded when they are first started, which beside a collective in mode "
        "host_sync may hang: set CUDA_MODULE_LOADING=EAGER before the process uses CUDA, or run each kernel "
        "once before the first collective (docs/gpu.md)");
  });
}

}  // namespace

DeviceParts::DeviceParts(Backend& used, int number, std::shared_ptr<CommunicatorCore> control,
                         std::shared_ptr<CommunicatorCore> near, ModeDecision decided)
    : backend(used),
      device(number),
      device_name(backend.identify(device).value().name),
      decision(std::move(decided)),
      groups{std::move(control), std::move(near), {}, {}, {}},
      shared(decision, groups.near->size()) {}

Result<std::unique_ptr<DeviceParts>> DeviceParts::make(CommunicatorCore& communicator,
                                                       Result<Backend*> backend, int device,
                                                       const DeviceOptions& options) {
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
    auto of_host = (*control)->split(hosts[static_cast<std::size_t>((*control)->rank())], 0,
                                     CommunicatorCore::Numbers::of_whole);
    if (!of_host.ok()) return of_host.status();
    near = std::move(*of_host);
    near_under_way.emplace(communicator, *near);
  }
  std::unique_ptr<DeviceParts> parts(new DeviceParts(**backend, device, *control, near, *decision));
  LOCKSTEP_RETURN_IF_ERROR(parts->set_up(options.timeout));
  return parts;
}

DeviceParts::~DeviceParts() {
  const BesideCaptures beside(backend);
  // The thread may be any. What is freed below waits for this device's streams, not for another's.
  const DeviceScope scope(backend, device);
  stream_runner.reset();
  sync_runner.reset();
  if (gate != nullptr) gate->release_all();
  gate.reset();
  groups.close();
  messenger.reset();
  courier.reset();
  marks.reset();
  groups.straight.reset();
  stream_calls.reset();
  groups.collectives.reset();
  across.reset();
  far_mail.reset();
  steps.reset();
  if (buffers != nullptr) buffers->let_go(windows.remove_all());
  buffers.reset();
  events.destroy_all();
  if (stream != nullptr) static_cast<void>(backend.destroy_stream(stream));
  order.destroy();
  // Peers that are not through with the last call may be reading it.
  if (area != nullptr) DeviceExports::of(backend).retire(area);
}

std::string DeviceParts::describe() const {
  const EngineGroup& group = groups.control->engine().group();
  return "rank " + std::to_string(group.rank) + " of " + std::to_string(group.size()) + " on device " +
         std::to_string(device) + " (" + device_name + "), mode " + std::string(name_of(decision.mode)) +
         " (" + decision.reason + ")" +
         (across != nullptr
              ? ", " + across->describe() + ", data pass " + way_between_hosts(decision) + " between them"
              : "");
}

}  // namespace lockstep::internal
