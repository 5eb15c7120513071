// DeviceCore: what a DeviceCommunicator handle points to.
//
// Beside it stands a host communicator of the same ranks, `control`, for the set-up and for the words of
// sends and receives. In mode host_sync an engine whose domain is the ranks' device memory runs the same
// programs as in shared memory: order, mismatches, deadlines, revokes are its. The worker waits on the host
// for the caller's stream, for its own stream, and for the peers; the caller's stream waits for the worker.
// In modes stream_sync and device_sync the caller's stream runs the programs; the worker watches for
// deadlines, mismatches and revokes, and lets the stream's waits pass when the group ended.
// On several hosts all this is so among the ranks of one host, `near`; AcrossHosts makes one of what the
// hosts do. What passes between them the worker carries, in all modes.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "collectives/device/courier.hpp"
#include "collectives/device/device_facts.hpp"
#include "collectives/device/device_steps.hpp"
#include "collectives/device/device_worker.hpp"
#include "collectives/device/event_pool.hpp"
#include "collectives/device/hosts/across_hosts.hpp"
#include "collectives/device/messenger.hpp"
#include "collectives/device/shared_buffers.hpp"
#include "collectives/device/stream_calls.hpp"
#include "collectives/device/stream_gate.hpp"
#include "collectives/device/stream_marks.hpp"
#include "collectives/device/stream_order.hpp"
#include "collectives/device/stream_runner.hpp"
#include "collectives/device/sync_runner.hpp"
#include "lib/device/held_streams.hpp"

namespace lockstep::internal {

class DeviceCore {
 public:
  /// Collective over `communicator`. Without a backend this rank tells the others why, and all fail.
  static Result<std::shared_ptr<DeviceCore>> make(CommunicatorCore& communicator, Result<Backend*> backend,
                                                  int device, const DeviceOptions& options);
  /// Aborts what is in flight, and waits until the caller's streams have passed it.
  ~DeviceCore();

  /// Whose group and sequence the calls belong to.
  Engine& engine() { return collectives_->engine(); }
  int device() const { return device_; }
  DeviceMode mode() const { return decision_.mode; }
  bool takes_turns() const { return decision_.take_turns; }
  std::string describe() const;

  /// Enqueues a collective. `copy_from`: where the input of a broadcast's root lies; null: in its buffer.
  Status start(CallBuilder call, Stream stream, const DeviceCallOptions& options,
               const void* copy_from = nullptr);
  /// Enqueues messages that do not wait for one another.
  Status start(std::vector<DeviceMessage> messages, const DeviceCallOptions& options);

  Status register_buffer(void* pointer, std::size_t bytes);
  Status register_window(void* pointer, std::size_t bytes, bool same_places);
  Status deregister(void* pointer);
  bool is_registered(const void* pointer, std::size_t bytes) const;

  Status wait();
  /// Why the communicator is not usable any more.
  Status state();
  void abort(std::string_view reason);
  Status finalize();

 private:
  DeviceCore(Backend& backend, int device, std::shared_ptr<CommunicatorCore> control,
             std::shared_ptr<CommunicatorCore> near, ModeDecision decision);
  Status set_up(const DeviceOptions& options);
  Status make_own_staging();
  /// `entered`: whether this thread works on the device.
  Result<std::vector<SegmentRef>> exchange_staging(const Status& entered);
  Status make_gate();
  std::size_t area_bytes() const;
  std::size_t program_staging() const { return decision_.staging_bytes - inbox_.bytes; }
  Status make_runners(const std::vector<std::byte*>& areas);
  Status adopt_staging(const std::vector<SegmentRef>& areas, const DeviceOptions& options);
  Status make_messenger(MessageAreas messages);
  Status open_far_mail(const DeviceOptions& options, MessageAreas& messages);
  Status connect_hosts(const DeviceOptions& options);
  bool have_streams_passed();
  /// All that are to be revoked when one is.
  std::vector<CommunicatorCore*> groups() const;

  // device_registration.cpp
  Status open_window(std::byte* base, std::size_t bytes);

  // device_start.cpp
  Status enqueue(const std::shared_ptr<DeviceTask>& task, std::span<const DeviceStream> streams);
  Status find_refusal(DeviceTask& task, const Result<bool>& captured, std::span<const DeviceStream> streams);
  Status push_refused(const std::shared_ptr<DeviceTask>& task, Status refusal);
  Status hold(DeviceTask& task, std::span<const DeviceStream> streams);
  Status check_stream(const Call& call, DeviceStream stream);
  Result<DeviceEvent> event_of(DeviceTask& task);
  Result<bool> is_any_captured(std::span<const DeviceStream> streams);
  Status refuse_capture(const DeviceTask& task);

  // device_stream.cpp
  bool runs_on_stream(const DeviceTask& task);
  bool is_carried(const DeviceTask& task) const;
  bool sees_by_marks() const;
  Status start_on_stream(const std::shared_ptr<DeviceTask>& task, std::span<const DeviceStream> streams,
                         bool captured);
  Status prepare_watch(DeviceTask& task, std::span<const DeviceStream> streams);
  Status note_begin(DeviceTask& task, WatchedCall& watched, DeviceStream stream);
  Status book(const DeviceTask& task, WatchedCall& watched);
  Status enqueue_watched(DeviceTask& task, std::span<const DeviceStream> streams);
  Status join(DeviceTask& task, std::span<const DeviceStream> streams);
  Status run_in_stream(CallRunner& runner, const DeviceTask& task, DeviceStream stream);
  Status record_in_graph(DeviceTask& task, std::span<const DeviceStream> streams);
  void look_after_graphs();
  Status watch(const DeviceTask& task);
  Result<bool> has_reached(const DeviceTask& task);
  Result<bool> has_passed(const DeviceTask& task);
  Status look_after(const DeviceTask& task);
  Status heed_deadline(const DeviceTask& task, Nanos now);
  Status carry(const DeviceTask& task);
  Status carry_columns(const DeviceTask& task);
  Status carry_messages(const DeviceTask& task);
  void end_carried(const Status& why);
  Status wait_until_begun(const DeviceTask& task);
  void heed_leavers();
  Status gave_up(const DeviceTask& task);
  Status late(const DeviceTask& task, int awaited);
  Status explained(const CallTrouble& trouble, std::string_view what);
  void let_pass(const DeviceTask& task);
  void release_waits();
  void close();

  // device_run.cpp
  void run(DeviceTask& task);
  Status run_collective(const DeviceTask& task);
  Status run_as_messages(const Call& call);
  Status run_messages(const DeviceTask& task);
  Status failed_here(const Status& why, const std::string& what);
  Status wait_until_ready(const DeviceTask& task);
  Status explained(Status status);
  Status ended_group();
  void fail(const Status& why);
  void revoke(const Status& why);
  Status failure();
  void heed_kernels();
  void let_worker_look();
  /// What this rank has heard of so far. For the worker, and who holds the order of the calls.
  Status known_state();

  Backend& backend_;
  const int device_;
  HeldStreams& held_ = HeldStreams::of(device_);
  const std::string device_name_;
  const std::shared_ptr<CommunicatorCore> control_;
  const std::shared_ptr<CommunicatorCore> near_;  ///< The ranks of this host; control_ where all are on one.
  const ModeDecision decision_;
  const InboxShare inbox_;
  const bool has_ranks_beside_;  ///< In this process.
  DeviceStream stream_ = nullptr;
  /// Shared with the peers: words, inbox of packets, staging for collectives, message area.
  std::byte* area_ = nullptr;
  std::unique_ptr<SharedBuffers> buffers_;
  DeviceWindows windows_;  ///< Empty in host_sync, which asks the peers in every call.
  std::unique_ptr<DeviceSteps> steps_;
  std::shared_ptr<CommunicatorCore> collectives_;
  std::unique_ptr<Courier> courier_;  ///< Where kernels wait, but none carries messages.
  std::unique_ptr<StreamCopier> copier_;
  std::unique_ptr<DeviceMessenger> messenger_;  ///< By one of both.
  std::unique_ptr<StreamMarks> marks_;          ///< Of calls that the worker has a part in.
  NoMemory no_memory_;
  std::unique_ptr<TransitMemory> far_mail_;     ///< Messages from and to other hosts; null without any.
  std::shared_ptr<CommunicatorCore> straight_;  ///< Moves these between devices; null: far_mail_ is pinned.
  std::unique_ptr<AcrossHosts> across_;         ///< Null where all are on one host.

  std::mutex start_mutex_;  ///< The order of the calls; guards what follows, up to state_mutex_.
  std::unique_ptr<StreamGate> gate_;
  Status gate_fault_;                   ///< Set at set-up: why nothing may be held by it, in device_sync.
  std::uint32_t issued_ = 0;            ///< Tickets.
  std::uint64_t calls_ = 0;             ///< Collectives; the same ones on all ranks.
  std::atomic<bool> finalized_{false};  ///< Read also without it.
  std::unique_ptr<StreamRunner> stream_runner_;  ///< In stream_sync.
  std::unique_ptr<SyncRunner>
      sync_runner_;                    ///< In device_sync; in stream_sync of captured calls and messages.
  CallRunner* runner_ = nullptr;       ///< Of calls: one of both, or null in host_sync.
  SyncRunner* capturer_ = nullptr;     ///< Of captured calls; null: none can be.
  SyncRunner* carrier_ = nullptr;      ///< Of messages, by one kernel; null: the messenger.
  std::atomic<bool> recorded_{false};  ///< A call was.
  std::optional<StreamCalls> stream_calls_;  ///< Beside a runner.
  StreamOrder order_{backend_};              ///< Beside a runner.
  std::mutex state_mutex_;                   ///< Guards the next. Taken last.
  Status failure_;
  EventPool events_{backend_};
  std::atomic<std::uint64_t> looks_{0};    ///< The worker's, at calls that their stream had not passed.
  std::atomic<bool> works_itself_{false};  ///< It runs an operation, and watches none.
  std::unique_ptr<DeviceWorker> worker_;
};

}  // namespace lockstep::internal
