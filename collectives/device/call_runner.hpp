// CallRunner: how the caller's stream itself runs a collective, waiting for the peers' streams in the way of
// its mode.
#pragma once

#include "collectives/engine/buffers.hpp"
#include "collectives/engine/call.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Not thread-safe but for let_pass(). All ranks enqueue the same calls in the same order.
class CallRunner {
 public:
  virtual ~CallRunner() = default;
  /// Enqueues the whole call, whose device is selected. After an error some of it may be enqueued.
  virtual Status enqueue(const Call& call, DeviceStream stream) = 0;
  /// Lets every wait of this rank pass, by a stream of its own if needed; again as long as peers may undo it.
  virtual Status let_pass(DeviceStream stream) = 0;
  /// The member for which a kernel waited beyond the call's deadline; -1: none did.
  virtual int late_member() const { return -1; }
};

// What runners have in common.
/// Of `call`, in storage that is used again; without staging.
void set_shape(Shape& shape, const Call& call, int rank, int world);
/// Without staging areas.
Buffers buffers_of(const Call& call, int rank);
Combine combine_of(const Call& call, int world);
/// In a group of one.
Status enqueue_alone(Backend& backend, const Call& call, DeviceStream stream);
/// The caller forced an algorithm that writes to members' buffers.
Status needs_host_sync(const Algorithm& algorithm);

}  // namespace lockstep::internal
