#include "collectives/device/device_facts.hpp"

#include <algorithm>
#include <cstring>

#include "lib/base/config.hpp"

namespace lockstep::internal {
namespace {

/// What this version runs.
constexpr DeviceMode kFastestBuilt = DeviceMode::stream_sync;
constexpr DeviceMode kModes[] = {DeviceMode::host_sync, DeviceMode::stream_sync, DeviceMode::device_sync};

/// Below this a slot of the staging area would hold nothing for hundreds of ranks.
constexpr std::uint64_t kLeastStaging = 64 << 10;

std::string ranks_text(std::size_t a, std::size_t b) {
  return "ranks " + std::to_string(a) + " and " + std::to_string(b);
}

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

/// The fastest mode that is right for these devices, and what keeps it from being a faster one.
ModeDecision best_mode(const std::vector<DeviceFacts>& facts) {
  ModeDecision best;
  best.mode = DeviceMode::host_sync;
  for (std::size_t a = 0; a < facts.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (facts[a].uuid == facts[b].uuid && !(facts[a].overlap != 0 && facts[b].overlap != 0)) {
        best.reason = ranks_text(b, a) + " share a GPU without MPS";
        return best;
      }
    }
  }
  best.reason = "the others were never measured: LOCKSTEP_DEVICE_MODE chooses them";
  return best;
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
  facts.device = device;
  facts.overlap = identity.value().kernels_of_processes_overlap ? 1 : 0;
  facts.stream_memory_operations = identity.value().stream_memory_operations ? 1 : 0;
  facts.is_host_backend = std::strcmp((*backend)->name(), "host") == 0 ? 1 : 0;
  facts.staging_bytes = std::max(kLeastStaging, config_bytes("LOCKSTEP_DEVICE_STAGING"));
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
    if (facts[r].stream_memory_operations == 0)
      return Status(ErrorCode::not_supported,
                    "rank " + std::to_string(r) +
                        "'s device has no stream memory operations (cuStreamWaitValue32), by which streams "
                        "wait for collectives",
                    static_cast<int>(r));
  }
  auto wish = common_wish(facts);
  if (!wish.ok()) return wish.status();
  ModeDecision decision = best_mode(facts);
  decision.staging_bytes = std::min_element(facts.begin(), facts.end(), [](const auto& a, const auto& b) {
                             return a.staging_bytes < b.staging_bytes;
                           })->staging_bytes;
  const bool one_host = std::all_of(group.members.begin(), group.members.end(), [&](const Member& member) {
    return member.host_id == group.members.front().host_id;
  });
  if (!one_host) {
    return Status(ErrorCode::not_supported,
                  "the ranks are on several hosts, which collectives on devices do not reach yet: split the "
                  "communicator by host, and pass between the hosts in host memory");
  }
  if (*wish) {
    if (**wish > kFastestBuilt) {
      return Status(ErrorCode::not_supported, "device mode " + std::string(name_of(**wish)) +
                                                  " is not in this version: the fastest is " +
                                                  std::string(name_of(kFastestBuilt)));
    }
    decision.mode = **wish;
    decision.reason = "as asked for";
  }
  return decision;
}

}  // namespace lockstep::internal
