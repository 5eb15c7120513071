// AcrossHosts: collectives of ranks whose devices are on several hosts, by the steps of a HostsPlan.
//
// Between hosts data pass through pinned memory (ColumnRelay). In stream_sync and device_sync the caller's
// stream is given all steps at once, and the worker carries what is for the network; in host_sync the worker
// does one step after the other. Where a fabric moves the memory of devices (StraightCalls), which takes
// host_sync, it takes the place of pinned memory, but for calls of all ranks that would then cross the
// network more often than once for each host.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "collectives/device/call_runner.hpp"
#include "collectives/device/hosts/hosts_plan.hpp"
#include "collectives/device/hosts/straight_calls.hpp"
#include "collectives/engine/domain_memory.hpp"

namespace lockstep::internal {

/// The memory of an engine in which the ranks only find out whether they called the same: it runs a barrier
/// over links, with the facts of the call.
class NoMemory final : public DomainMemory {
 public:
  Status run(const Program& program, const Step& step, const Buffers& buffers,
             const Combine& combine) override;
  Status complete() override { return {}; }
  SegmentRef reference(const void*, std::size_t) override { return {}; }
  Result<Selection> choose(const CallFacts& facts, const Shape& shape) override;
};

/// What a group of some of `all` reports, with the number in `all` of the rank that it names. Blocks for a
/// moment where it ended because of a rank that is not in it, of which `all` hear.
Status in_ranks_of(CommunicatorCore& all, CommunicatorCore& group, Status status);
/// What names a rank by its number in `all`, as the group is told: with its number there, if it is in it.
Status for_ranks_of(const CommunicatorCore& group, const CommunicatorCore& all, const Status& status);

class AcrossHosts {
 public:
  /// Collective over `all`. `near` is the engine of the ranks of this host on the memory of their devices.
  /// `stream` is of `device` and idle between calls of run(). `bytes` of pinned memory, equal on all ranks.
  static Result<std::unique_ptr<AcrossHosts>> make(Backend& backend, DeviceStream stream,
                                                   CommunicatorCore& all,
                                                   std::shared_ptr<CommunicatorCore> near, std::size_t bytes);

  /// From now on run() is by `straight`, whose messenger's group is that of all.
  void go_straight(std::unique_ptr<StraightCalls> straight) { straight_ = std::move(straight); }

  // All ranks have found out, or do before the network's part, that they call the same. Not for what passes
  // as messages.
  /// In host_sync, of one thread: blocks until the call is done on this rank. `watch` hears of whom it waits
  /// for on this host, too.
  Status run(const Call& call, const RelayWatch& watch);

  // In the other modes a call is booked and enqueued in the order of the calls, by one thread at a time, and
  // carried in the same order by another.
  Result<HostsBooking> book(const Call& call);
  Status enqueue(const HostsBooking& booking, const Call& call, CallRunner& runner, DeviceStream stream);
  /// Blocks until the network's part is done, or failed. No call to the driver.
  Status carry(const HostsBooking& booking, const RelayWatch& watch);
  /// Ends every wait of streams for the network, now and later. From any thread.
  void let_pass();

  /// Whatever fails, these are to be revoked. From any thread.
  std::vector<CommunicatorCore*> groups() const;
  /// "2 hosts, 4 ranks on each"
  std::string describe() const;

 private:
  AcrossHosts(Backend& backend, DeviceStream stream, std::shared_ptr<CommunicatorCore> near)
      : backend_(backend), stream_(stream), near_devices_(std::move(near)) {}
  Status meet(CommunicatorCore& all, std::size_t bytes);
  Status run(NearStep& step, const RelayWatch& watch);
  Status run(const FarStep& step, const RelayWatch& watch);
  Status run(const DivideStep& step, const RelayWatch& watch);
  bool runs_straight(const FarStep& step) const;
  Status run_straight(const FarStep& step, Nanos end);
  Status carry(const FarStep& step, const ColumnRelay::Passage& passage, const RelayWatch& watch);
  RelayWatch for_group(CommunicatorCore& group, RelayWatch watch) const;
  Status divide(const DivideStep& step, DeviceStream stream);
  std::uint32_t* carried() const { return reinterpret_cast<std::uint32_t*>(carried_->data()); }
  CommunicatorCore& group_of(const FarStep& step) const { return step.in_row ? *row_ : *wire_; }

  Backend& backend_;
  const DeviceStream stream_;
  const std::shared_ptr<CommunicatorCore> near_devices_;
  std::shared_ptr<CommunicatorCore> wire_;  ///< All ranks, on host memory.
  std::shared_ptr<CommunicatorCore> row_;   ///< Those with the same number on their hosts; null if uneven.
  HostsGround ground_;
  std::unique_ptr<TransitMemory> carried_;  ///< The number of the last call that was carried.
  std::atomic<std::uint32_t> booked_{0};
  std::unique_ptr<ColumnRelay> relay_;
  std::unique_ptr<StraightCalls> straight_;  ///< Null: everything is staged.
};

}  // namespace lockstep::internal
