// SyncRunner: collectives whose waits are in kernels, for mode device_sync and for graphs.
//
// Small calls are one packet kernel (lib/device/sync/packet_call.hpp). Larger ones are the domain programs of
// stream_sync, with their phases as kernels; each call ends with a phase of its own, after which nobody reads
// staging memory any more. What rises from call to call (epochs, the base of the phases) lies in device
// memory and rises in the kernels. So a captured call has the same arguments in every replay.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/call_runner.hpp"
#include "collectives/device/device_task.hpp"
#include "collectives/engine/prepared_program.hpp"

namespace lockstep::internal {

/// Where the members' words, inboxes and staging areas lie as this rank's device addresses them; by member,
/// zero at first.
struct SyncAreas {
  int rank = 0;
  std::vector<std::byte*> words;  ///< kWordStride apart, by writer.
  std::vector<std::byte*> inboxes;
  std::uint64_t slot_bytes = 0;
  std::vector<std::byte*> staging;
  std::size_t staging_bytes = 0;
  std::vector<std::byte*> messages;
  std::size_t message_bytes = 0;  ///< sync::message_word_bytes() of them zero at first.
  int packet_blocks = sync::kMaxPacketBlocks;
  int world() const { return static_cast<int>(words.size()); }
};

/// How many bytes of a staging area are the inbox, and what a slot of it holds.
struct InboxShare {
  std::size_t bytes = 0;
  std::uint64_t slot_bytes = 0;
};
InboxShare inbox_share(std::size_t staging_bytes, int world);

class SyncRunner final : public CallRunner {
 public:
  /// `backend` outlives it. `stream` is of `device`, which is selected. `opens`: staging areas are also used
  /// by others, so that a call begins with a phase.
  static Result<std::unique_ptr<SyncRunner>> make(Backend& backend, int device, SyncAreas areas, bool opens,
                                                  DeviceStream stream);
  /// Nothing that it enqueued is still to run.
  ~SyncRunner() override;

  Status enqueue(const Call& call, DeviceStream stream) override;
  /// Messages that do not wait for one another. Only where carries_messages().
  Status enqueue(std::span<const DeviceMessage> messages, Nanos timeout, DeviceStream stream);
  /// Equal on all ranks.
  bool carries_messages() const { return areas_.world() == 1 || message_slot_bytes() != 0; }
  Status let_pass(DeviceStream stream) override;
  std::optional<CallTrouble> trouble() const override;
  /// What waits for this member gives up, now and later. It had passed all that it enqueued.
  void note_left(int member);

 private:
  DeviceGround ground() const override { return {.kernels_wait = true}; }
  SyncRunner(Backend& backend, SyncAreas areas, bool opens)
      : backend_(backend), areas_(std::move(areas)), opens_(opens) {}
  Status enqueue_packets(sync::PacketArguments packets, const Call& call, DeviceStream stream);
  Status enqueue_program(const Call& call, DeviceStream stream);
  Status enqueue_phases(sync::PhaseArguments& phase, std::span<const Step> steps, std::size_t& next,
                        DeviceStream stream, std::uint32_t advance);
  sync::PhaseArguments phase_arguments(std::uint64_t limit) const;
  sync::SpinBounds bounds(std::uint64_t limit) const;
  Status copy_own(std::span<const DeviceMessage> messages, DeviceStream stream);
  std::uint64_t message_slot_bytes() const {
    return sync::message_slot_bytes(areas_.message_bytes, areas_.world());
  }

  /// Of this rank alone, in device memory.
  struct Counters {
    std::uint64_t epochs[sync::kMaxPacketBlocks];
    std::uint32_t base;
    sync::MessageCounters messages;
  };
  /// In pinned memory.
  struct Signals {
    std::uint32_t abort, report, left[sync::kMaxPhaseRanks / 32];
    sync::MessageSizes sizes;
  };

  Backend& backend_;
  const SyncAreas areas_;
  const bool opens_;
  Counters* counters_ = nullptr;
  Signals* signals_ = nullptr;
  ProgramCache programs_;
  Shape shape_;
};

}  // namespace lockstep::internal
