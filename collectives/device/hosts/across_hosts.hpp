// AcrossHosts: collectives of ranks whose devices are on several hosts.
//
// Between hosts data pass through pinned memory (PinnedPipeline). Where every host has as many ranks, several
// of them, what can be is done inside the hosts first, from device to device:
//
//   all_reduce   reduce_scatter in the host, all_reduce of its share by every rank with those that have the
//                same number on the other hosts, all_gather in the host
//   broadcast    root to those with its number, who broadcast in their hosts
//   all_gather   among those with the same number, then in the host, a host's blocks after the other's
//
// Everything else is a collective of all ranks on host memory, whose programs know hosts by themselves.
//
// Where a fabric moves the memory of devices (StraightCalls), it takes the place of pinned memory in all
// this, but for calls of all ranks that would then cross the network more often than once for each host.
#pragma once

#include <memory>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "collectives/device/hosts/pinned_pipeline.hpp"
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

/// What a group of some of `all` reports, with the number in `all` of the rank that it names.
Status in_ranks_of(const CommunicatorCore& all, const CommunicatorCore& group, Status status);

/// Used by one thread but for groups().
class AcrossHosts {
 public:
  /// Collective over `all`. `near` is the engine of the ranks of this host on the memory of their devices.
  /// `stream` is of `device` and idle between calls. `bytes` of pinned memory, equal on all ranks.
  static Result<std::unique_ptr<AcrossHosts>> make(Backend& backend, DeviceStream stream,
                                                   CommunicatorCore& all,
                                                   std::shared_ptr<CommunicatorCore> near, std::size_t bytes);

  /// From now on by `straight`, whose messenger's group is that of all.
  void go_straight(std::unique_ptr<StraightCalls> straight) { straight_ = std::move(straight); }

  /// Blocks until the call is done on this rank. All ranks have found out that they call the same. Not for
  /// what passes as messages.
  Status run(const Call& call);
  /// On which copies run beside `stream`.
  DeviceStream stream_back() const { return pipeline_->stream_back(); }
  /// Whatever fails, these are to be revoked.
  std::vector<CommunicatorCore*> groups() const;
  /// "2 hosts, 4 ranks on each"
  std::string describe() const;

 private:
  AcrossHosts(Backend& backend, DeviceStream stream, std::shared_ptr<CommunicatorCore> near)
      : backend_(backend), stream_(stream), near_(std::move(near)) {}
  Status meet(CommunicatorCore& all, std::size_t bytes);

  Status run_whole(const Call& call, Nanos end);
  bool whole_goes_straight(Collective collective) const;
  Status all_reduce(const Call& call, Nanos end);
  Status broadcast(const Call& call, Nanos end);
  Status all_gather(const Call& call, Nanos end);
  Status divide(const Call& call, std::byte* data, std::uint64_t count, double divisor, Nanos end);
  Status run_near(CallBuilder call, Nanos end);
  Status run_row(const StagedCall& call, Nanos end);
  CallBuilder near_call(const Call& call, Collective collective, double scale = 1) const;
  Result<double> scale_of(const Call& call, Nanos end);
  int local() const { return near_->rank(); }
  std::size_t ranks_here() const { return static_cast<std::size_t>(near_->size()); }

  Backend& backend_;
  const DeviceStream stream_;
  const std::shared_ptr<CommunicatorCore> near_;
  std::shared_ptr<CommunicatorCore> wire_;  ///< All ranks, on host memory.
  std::shared_ptr<CommunicatorCore> row_;   ///< Those with the same number on their hosts; null if uneven.
  std::vector<int> hosts_;                  ///< As Shape::hosts.
  std::vector<int> row_ranks_;              ///< Of row_'s members, in all.
  bool adjacent_ = false;                   ///< The ranks of every host follow one another.
  std::unique_ptr<PinnedPipeline> pipeline_;
  std::unique_ptr<StraightCalls> straight_;  ///< Null: everything is staged.
  std::unique_ptr<TransitMemory> factor_;    ///< Where a scale that lies on the device is read to.
};

}  // namespace lockstep::internal
