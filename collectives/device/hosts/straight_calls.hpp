// StraightCalls: collectives between hosts whose data no host memory sees: messages that a fabric moves from
// device to device, and reductions by kernels.
//
//   all_reduce, reduce     every rank gets its part of all inputs, reduces it, and gives the result to all,
//                          or to the root
//   reduce_scatter(_v)     the same with blocks, and without the second half
//   broadcast              the root gives every rank a part, which that gives to the others
//   others                 a message for each block
//
// A byte that is reduced or broadcast leaves its device 2 (n - 1) / n times, the least possible, and no rank
// waits for more than two others in turn. Sums are in the order of the ranks, rounded once.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/hosts/staged_call.hpp"
#include "collectives/device/hosts/transit_memory.hpp"
#include "collectives/device/messenger.hpp"

namespace lockstep::internal {

/// Used by one thread.
class StraightCalls {
 public:
  /// All outlive it; `stream` is of `device` and idle between calls of run(). `bytes` of device memory, equal
  /// on all ranks, hold what is to be reduced.
  static Result<std::unique_ptr<StraightCalls>> make(Backend& backend, int device, DeviceStream stream,
                                                     DeviceMessenger& messenger, std::size_t bytes);

  /// Who takes part, by their numbers in the messenger's group, and which of them this rank is.
  struct Group {
    std::vector<int> ranks;
    int self = 0;
  };
  /// What does not: an operator that scales each rank's input by a factor of its own.
  static bool carries(const StagedCall& call) { return call.op != ReduceOp::premul_sum; }
  /// Blocks until the call is done on this rank, or failed. All ranks of `group` make the same call. `end`:
  /// when it must be done; 0 = never. The device is selected.
  Status run(const Group& group, const StagedCall& call, Nanos end);

 private:
  class Call;
  StraightCalls(Backend& backend, DeviceStream stream, DeviceMessenger& messenger,
                std::unique_ptr<TransitMemory> memory)
      : backend_(backend), stream_(stream), messenger_(messenger), memory_(std::move(memory)) {}

  Backend& backend_;
  const DeviceStream stream_;
  DeviceMessenger& messenger_;
  const std::unique_ptr<TransitMemory> memory_;
};

}  // namespace lockstep::internal
