// DeviceFacts: what every rank tells all others about its device before the first operation, and the mode
// that follows from it on every rank alike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/engine_group.hpp"
#include "lib/device/backend.hpp"
#include "lib/device/sync/packet_call.hpp"
#include "lockstep/device.hpp"

namespace lockstep::internal {

/// Fixed size: travels through an all_gather of the ranks.
struct DeviceFacts {
  std::array<std::uint8_t, 16> uuid{};
  std::int32_t wanted_mode = -1;  ///< A DeviceMode, or -1.
  std::uint8_t overlap = 0;       ///< Kernels of processes that share the device run side by side.
  std::uint8_t is_host_backend = 0;
  std::uint8_t goes_straight = 0;  ///< The network takes the device's memory from and to where it lies.
  std::uint8_t reserved[5] = {};
  std::uint32_t multiprocessors = 0;
  std::uint64_t staging_bytes = 0;
  char fault[512] = {};  ///< Not empty: why this rank cannot take part.
};

struct ModeDecision {
  DeviceMode mode = DeviceMode::host_sync;
  std::string reason;               ///< "ranks 0 and 1 share a GPU without MPS"
  std::uint64_t staging_bytes = 0;  ///< Equal on all ranks: the least.
  bool devices_are_shared = false;  ///< By two ranks at least.
  /// All ranks work on one device, on which their kernels run one process after the other.
  bool take_turns = false;
  /// All ranks' kernels run at the same time, so that one may wait for another: calls can be captured.
  bool kernels_may_wait = false;
  int packet_blocks = sync::kMaxPacketBlocks;  ///< The most of a packet kernel, on any rank.
  bool several_hosts = false;
  bool straight = false;  ///< Between hosts nothing passes through pinned memory that need not.
};

/// This rank's facts; what fails becomes a fault, so that all ranks hear of it.
DeviceFacts facts_of(Result<Backend*>& backend, int device, const DeviceOptions& options);

/// A pure function of shared facts. `facts` by rank. Errors: a rank's fault, contradictory or impossible
/// wishes.
Result<ModeDecision> decide_mode(const std::vector<DeviceFacts>& facts, const EngineGroup& group);

/// DeviceOptions::mode, else LOCKSTEP_DEVICE_MODE.
std::optional<DeviceMode> wanted_mode(const DeviceOptions& options);

}  // namespace lockstep::internal
