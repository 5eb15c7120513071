// HostsPlan: what a collective of ranks on several hosts consists of on one of them, as data.
//
// Where every host has as many ranks, several of them, what can be is done inside the hosts first, from
// device to device:
//
//   all_reduce   reduce_scatter in the host, all_reduce of its share by every rank with those that have the
//                same number on the other hosts, all_gather in the host
//   broadcast    root to those with its number, who broadcast in their hosts
//   all_gather   among those with the same number, then in the host, a host's blocks after the other's
//
// Everything else is a collective of all ranks on host memory, whose programs know hosts by themselves.
#pragma once

#include <variant>
#include <vector>

#include "collectives/device/hosts/column_relay.hpp"
#include "collectives/device/hosts/staged_call.hpp"

namespace lockstep::internal {

/// Among the ranks of this host, on the memory of their devices.
struct NearStep {
  CallBuilder call;  ///< Built.
};
/// With ranks of other hosts.
struct FarStep {
  StagedCall call;
  bool in_row = false;  ///< With those of this rank's number, else with all.
  ColumnRelay::Passage passage = {};
};
/// Of this rank alone.
struct DivideStep {
  std::byte* data = nullptr;
  DataType type = DataType::f32;
  std::uint64_t count = 0;
  double divisor = 1;
};
using HostsStep = std::variant<NearStep, FarStep, DivideStep>;
using HostsPlan = std::vector<HostsStep>;

/// A call whose steps a stream is given at once.
struct HostsBooking {
  std::uint32_t number = 0;  ///< Among all that were booked; wraps.
  HostsPlan plan;
  bool has_columns = false;  ///< The stream waits for the network on the way.
};

/// Where a rank stands among those of all hosts.
struct HostsGround {
  const Engine* near = nullptr;  ///< Of the ranks of this host.
  int rank = 0;
  std::vector<int> hosts;  ///< As Shape::hosts.
  std::vector<int> row;    ///< The ranks of this one's number, in order; empty: they do nothing together.
  bool adjacent = false;   ///< The ranks of every host follow one another.

  int world() const { return static_cast<int>(hosts.size()); }
  int number_of(int one) const;  ///< On its host.
};

/// Not for what passes as messages. Nothing of a barrier.
HostsPlan plan_for_hosts(const Call& call, const HostsGround& ground);

}  // namespace lockstep::internal
