#include "collectives/device/device_facts.hpp"

#include <algorithm>
#include <cstring>

#include "collectives/engine/group_hosts.hpp"
#include "lib/base/config.hpp"
#include "lib/device/sync/message_call.hpp"
#include "lib/device/sync/phase_body.hpp"

namespace lockstep::internal {
namespace {

constexpr DeviceMode kModes[] = {DeviceMode::host_sync, DeviceMode::stream_sync, DeviceMode::device_sync};

/// Below this a slot of the staging area would hold nothing for hundreds of ranks.
constexpr std::uint64_t kLeastStaging = 64 << 10;
/// What it is cut into begins at multiples of what kernels load at once.
constexpr std::uint64_t kStagingUnit = 4096;

Result<DeviceIdentity> identity_of(Result<Backend*>& backend, int device) {
  if (!backend.ok()) return backend.status();
  auto count = (*backend)->device_count();
  if (!count.ok()) return count.status();
  if (device < 0 || device >= *count) {
    return Status(ErrorCode::invalid_argument,
                  "device " + std::to_string(device) + " does not exist: this process sees " +
                      std::to_string(*count) + " (CUDA_VISIBLE_DEVICES says which)");
  }
  return (*backend)->identify(device);
}

/// The wish of all ranks, if any has one.
Result<std::optional<DeviceMode>> common_wish(const std::vector<DeviceFacts>& facts) {
  for (std::size_t r = 1; r < facts.size(); ++r) {
    if (facts[r].wanted_mode == facts[0].wanted_mode) continue;
    const auto wish = [&](std::size_t rank) {
      const int mode = facts[rank].wanted_mode;
      return mode < 0 ? std::string("none") : std::string(name_of(static_cast<DeviceMode>(mode)));
    };
    return Status(ErrorCode::configuration, "rank 0 wants device mode " + wish(0) + ", rank " +
                                                std::to_string(r) + " wants " + wish(r) +
                                                ": give DeviceOptions::mode or LOCKSTEP_DEVICE_MODE alike");
  }
  if (facts[0].wanted_mode < 0) return std::optional<DeviceMode>();
  return std::optional(static_cast<DeviceMode>(facts[0].wanted_mode));
}

/// Ranks of one host, beside what they told.
struct HostRanks {
  std::vector<int> numbers;  ///< Among all.
  std::vector<DeviceFacts> facts;
  std::vector<std::uint64_t> processes;
  std::size_t size() const { return facts.size(); }
};

/// One of those at `chosen`.
HostRanks ranks_of(const std::vector<DeviceFacts>& facts, const EngineGroup& group,
                   const std::vector<std::size_t>& chosen) {
  HostRanks ranks;
  for (const std::size_t r : chosen) {
    ranks.numbers.push_back(static_cast<int>(r));
    ranks.facts.push_back(facts[r]);
    ranks.processes.push_back(group.members[r].process);
  }
  return ranks;
}

std::vector<HostRanks> by_host(const std::vector<DeviceFacts>& facts, const EngineGroup& group) {
  std::vector<int> host_of = hosts_of(group);
  host_of.resize(facts.size());  // Empty where there is one.
  std::vector<std::vector<std::size_t>> ranks(
      static_cast<std::size_t>(*std::max_element(host_of.begin(), host_of.end())) + 1);
  for (std::size_t r = 0; r < facts.size(); ++r) ranks[static_cast<std::size_t>(host_of[r])].push_back(r);
  std::vector<HostRanks> hosts;
  for (const auto& chosen : ranks) hosts.push_back(ranks_of(facts, group, chosen));
  return hosts;
}

/// Two ranks on one device of which `matters` is true; empty where there are none.
template <typename Matters>
std::string sharing(const HostRanks& ranks, Matters matters) {
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (ranks.facts[a].uuid != ranks.facts[b].uuid || !matters(a, b)) continue;
      return "ranks " + std::to_string(ranks.numbers[b]) + " and " + std::to_string(ranks.numbers[a]);
    }
  }
  return {};
}

bool is_any_device_shared(const HostRanks& ranks) {
  return !sharing(ranks, [](auto, auto) { return true; }).empty();
}

/// Two ranks whose kernels take turns on one GPU; empty where there are none.
std::string time_slices(const HostRanks& ranks) {
  const std::string two = sharing(ranks, [&](std::size_t a, std::size_t b) {
    const bool overlap = ranks.facts[a].overlap != 0 && ranks.facts[b].overlap != 0;
    return !overlap && ranks.processes[a] != ranks.processes[b];
  });
  return two.empty() ? two : two + " share a GPU without MPS";
}

std::uint64_t ranks_on(const std::vector<DeviceFacts>& facts, const DeviceFacts& device) {
  return static_cast<std::uint64_t>(std::count_if(
      facts.begin(), facts.end(), [&](const DeviceFacts& one) { return one.uuid == device.uuid; }));
}

/// Kernels that wait for one another have to run side by side, each of its blocks: one on a multiprocessor is
/// what is sure.
bool is_crowded(const std::vector<DeviceFacts>& facts, const DeviceFacts& one) {
  const std::uint64_t ranks = ranks_on(facts, one);
  return ranks > 1 && ranks * sync::kMaxMessageBlocks > one.multiprocessors;
}

/// The same on all ranks, as threads of one number wait for one another. On the host backend blocks are
/// threads, which need no room.
int packet_blocks(const std::vector<DeviceFacts>& facts) {
  std::uint64_t most = sync::kMaxPacketBlocks;
  for (const DeviceFacts& one : facts) {
    const std::uint64_t ranks = ranks_on(facts, one);
    if (ranks > 1 && one.is_host_backend == 0) most = std::min(most, one.multiprocessors / ranks);
  }
  return std::max(1, static_cast<int>(most));
}

/// Why kernels do not wait unless they are asked to; empty where they do.
std::string obstacle(const HostRanks& ranks) {
  if (const std::string slices = time_slices(ranks); !slices.empty()) return slices;
  if (ranks.facts.front().is_host_backend != 0)
    return "on the host backend kernels that wait keep cores from the others";
  if (ranks.size() > sync::kMaxPhaseRanks)
    return "there are more than " + std::to_string(sync::kMaxPhaseRanks) + " ranks on a host";
  const std::string threads =
      sharing(ranks, [&](std::size_t a, std::size_t b) { return ranks.processes[a] == ranks.processes[b]; });
  if (!threads.empty()) return threads + " are threads of one process on one GPU";
  const std::string crowd =
      sharing(ranks, [&](std::size_t a, std::size_t) { return is_crowded(ranks.facts, ranks.facts[a]); });
  return crowd.empty() ? crowd
                       : crowd + " share a GPU by MPS, on which not all kernels are sure to have room";
}

/// What is right for these devices. Whether they reach each other's memory is no question: every mode needs
/// it. Of ranks that share a GPU the streams wait where kernels cannot: that costs no time slice (measured: 5
/// to 7 us a hop on an H100, where a kernel that waits costs 2 to 7 ms) and no multiprocessor, and a program
/// that blocks inside the driver keeps no thread from its work, as it does in host_sync.
ModeDecision best_mode(const HostRanks& ranks) {
  const std::string why_not = obstacle(ranks);
  if (why_not.empty())
    return {DeviceMode::device_sync, std::string("kernels of all ranks run at the same time") +
                                         (is_any_device_shared(ranks) ? "" : "; not measured yet")};
  const bool on_host = ranks.facts.front().is_host_backend != 0 && time_slices(ranks).empty();
  const bool streams = !on_host && ranks.size() <= sync::kMaxPhaseRanks;
  return {streams ? DeviceMode::stream_sync : DeviceMode::host_sync, why_not};
}

/// Ranks wait for those of their host, and on all hosts in the same way: the one that fits all. Messages that
/// go straight from device to device are a thread's work.
ModeDecision best_mode(const std::vector<HostRanks>& hosts, bool straight) {
  if (straight) return {DeviceMode::host_sync, "the network between the hosts reaches the devices' memory"};
  ModeDecision weakest = best_mode(hosts.front());
  for (const HostRanks& host : hosts) {
    ModeDecision best = best_mode(host);
    if (best.mode < weakest.mode) weakest = std::move(best);
  }
  return weakest;
}

/// A wish is granted even where waits cost time slices: bounded they are, and so it can be measured.
Status grant(DeviceMode wish, const std::vector<HostRanks>& hosts, ModeDecision& decision) {
  decision.mode = wish;
  decision.reason = "as asked for";
  for (const HostRanks& host : hosts) {
    if (wish != DeviceMode::device_sync) break;
    if (host.size() > sync::kMaxPhaseRanks)
      return Status(ErrorCode::not_supported, "device mode device_sync serves up to " +
                                                  std::to_string(sync::kMaxPhaseRanks) +
                                                  " ranks of a host: leave the mode to the library");
    const std::string slices = time_slices(host);
    if (!slices.empty())
      decision.reason = "as asked for, though " + slices + ": every wait costs them a time slice";
  }
  return {};
}

}  // namespace

std::optional<DeviceMode> wanted_mode(const DeviceOptions& options) {
  if (options.mode) return options.mode;
  const std::string name = config_text("LOCKSTEP_DEVICE_MODE");
  const auto* const found = std::find_if(std::begin(kModes), std::end(kModes),
                                         [&](DeviceMode mode) { return name_of(mode) == name; });
  return found == std::end(kModes) ? std::nullopt : std::optional(*found);
}

DeviceFacts facts_of(Result<Backend*>& backend, int device, const DeviceOptions& options) {
  DeviceFacts facts;
  const auto identity = identity_of(backend, device);
  if (!identity.ok()) {
    std::strncpy(facts.fault, identity.status().message().c_str(), sizeof facts.fault - 1);
    return facts;
  }
  facts.uuid = identity.value().uuid;
  facts.multiprocessors = static_cast<std::uint32_t>(identity.value().multiprocessors);
  facts.overlap = identity.value().kernels_of_processes_overlap ? 1 : 0;
  facts.is_host_backend = (*backend)->is_host() ? 1 : 0;
  facts.staging_bytes =
      std::max(kLeastStaging, config_bytes("LOCKSTEP_DEVICE_STAGING") / kStagingUnit * kStagingUnit);
  if (const auto mode = wanted_mode(options)) facts.wanted_mode = static_cast<std::int32_t>(*mode);
  return facts;
}

Result<ModeDecision> decide_mode(const std::vector<DeviceFacts>& facts, const EngineGroup& group) {
  for (std::size_t r = 0; r < facts.size(); ++r) {
    if (facts[r].fault[0] == '\0') continue;
    return Status(ErrorCode::not_supported, "rank " + std::to_string(r) + ": " + facts[r].fault,
                  static_cast<int>(r));
  }
  for (std::size_t r = 0; r < facts.size(); ++r) {
    if (facts[r].is_host_backend != facts[0].is_host_backend)
      return Status(ErrorCode::configuration, "rank 0 and rank " + std::to_string(r) +
                                                  " have different LOCKSTEP_DEVICE_BACKEND: one runs CUDA, "
                                                  "the other stands in for it");
  }
  auto wish = common_wish(facts);
  if (!wish.ok()) return wish.status();
  const std::vector<HostRanks> hosts = by_host(facts, group);
  const bool several_hosts = hosts.size() > 1;
  const bool straight = several_hosts && std::all_of(facts.begin(), facts.end(),
                                                     [](const auto& one) { return one.goes_straight != 0; });
  ModeDecision decision = best_mode(hosts, straight);
  if (*wish) LOCKSTEP_RETURN_IF_ERROR(grant(**wish, hosts, decision));
  decision.several_hosts = several_hosts;
  decision.straight = straight && decision.mode == DeviceMode::host_sync;
  const bool slices = std::any_of(hosts.begin(), hosts.end(),
                                  [](const HostRanks& host) { return !time_slices(host).empty(); });
  decision.devices_are_shared = std::any_of(hosts.begin(), hosts.end(), is_any_device_shared);
  decision.take_turns = slices && ranks_on(facts, facts.front()) == facts.size();
  // Those of a mode that was asked for may also where they are not sure to have room. Between hosts there are
  // no calls of kernels alone.
  decision.kernels_may_wait = !several_hosts && !slices && facts.size() <= sync::kMaxPhaseRanks &&
                              (wish->has_value() || decision.mode == DeviceMode::device_sync);
  decision.packet_blocks = packet_blocks(facts);
  decision.staging_bytes = std::min_element(facts.begin(), facts.end(), [](const auto& a, const auto& b) {
                             return a.staging_bytes < b.staging_bytes;
                           })->staging_bytes;
  return decision;
}

}  // namespace lockstep::internal
