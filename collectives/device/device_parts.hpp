// DeviceParts: what a communicator of devices works with, made before its first call and kept to its end.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "collectives/device/courier.hpp"
#include "collectives/device/device_facts.hpp"
#include "collectives/device/device_groups.hpp"
#include "collectives/device/device_steps.hpp"
#include "collectives/device/event_pool.hpp"
#include "collectives/device/hosts/across_hosts.hpp"
#include "collectives/device/messenger.hpp"
#include "collectives/device/stream_calls.hpp"
#include "collectives/device/stream_gate.hpp"
#include "collectives/device/stream_marks.hpp"
#include "collectives/device/stream_order.hpp"
#include "collectives/device/stream_runner.hpp"
#include "collectives/device/sync_runner.hpp"
#include "collectives/make_transport.hpp"

namespace lockstep::internal {

/// The memory of the backend's devices, as a fabric is told.
PayloadMemory payloads_of(const Backend& backend);

/// Memory that each rank of a host shares with the others: words, and from these offsets on what they say.
struct SharedArea {
  SharedArea(const ModeDecision& decision, int world);

  InboxShare packets;    ///< How much of it is for them.
  std::size_t inbox;     ///< Of packets.
  std::size_t staging;   ///< For collectives.
  std::size_t messages;  ///< Where those of a rank wait for their receivers.
  std::size_t bytes;     ///< In all.
  std::size_t staging_bytes() const { return messages - staging; }
  std::size_t message_bytes() const { return bytes - messages; }
};

/// Those who work with them name what they use among their members.
struct DeviceParts {
  /// Collective over `communicator`. Without a backend this rank tells the others why, and all fail.
  static Result<std::unique_ptr<DeviceParts>> make(CommunicatorCore& communicator, Result<Backend*> backend,
                                                   int device, const DeviceOptions& options);
  /// Ends them, in their order, once nobody works with them; also those of a set-up that failed.
  ~DeviceParts();
  DeviceParts(const DeviceParts&) = delete;
  DeviceParts& operator=(const DeviceParts&) = delete;
  std::string describe() const;

  Backend& backend;
  const int device;
  const std::string device_name;
  const ModeDecision decision;
  DeviceGroups groups;
  DeviceStream stream = nullptr;     ///< This rank's own.
  std::unique_ptr<StreamGate> gate;  ///< Where the caller's streams wait for the worker.
  Status gate_fault;                 ///< Why nothing may be held by it, in device_sync.

  const SharedArea shared;
  std::byte* area = nullptr;  ///< This rank's; null in a group of one.
  std::unique_ptr<SharedBuffers> buffers;
  DeviceWindows windows;               ///< Empty in host_sync, which asks the peers in every call.
  std::unique_ptr<DeviceSteps> steps;  ///< Of the engine among the ranks of this host.
  NoMemory no_memory;                  ///< Of those between hosts.

  std::unique_ptr<StreamRunner> stream_runner;  ///< In stream_sync.
  /// In device_sync; in stream_sync of captured calls and messages.
  std::unique_ptr<SyncRunner> sync_runner;
  CallRunner* runner = nullptr;             ///< Of calls: one of both, or null in host_sync.
  SyncRunner* capturer = nullptr;           ///< Of captured calls; null: none can be.
  SyncRunner* carrier = nullptr;            ///< Of messages, by one kernel; null: the messenger.
  std::optional<StreamCalls> stream_calls;  ///< Beside a runner, and between hosts.
  StreamOrder order{backend};               ///< Beside a runner.
  std::unique_ptr<StreamMarks> marks;       ///< Of calls that the worker has a part in.
  EventPool events{backend};

  std::unique_ptr<Courier> courier;  ///< Where kernels wait, but none carries messages.
  std::unique_ptr<StreamCopier> copier;
  std::unique_ptr<DeviceMessenger> messenger;  ///< By one of both.
  std::unique_ptr<TransitMemory> far_mail;     ///< Messages from and to other hosts; null without any.
  std::unique_ptr<AcrossHosts> across;         ///< Null where all are on one host.

 private:
  DeviceParts(Backend& used, int number, std::shared_ptr<CommunicatorCore> control,
              std::shared_ptr<CommunicatorCore> near, ModeDecision decided);
  Status set_up(std::chrono::milliseconds timeout);
};

}  // namespace lockstep::internal
