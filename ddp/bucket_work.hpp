// The collective that carries a bucket, started on the thread that brings it. Tells the clock when it is
// done.
#pragma once

#include "ddp/step_clock.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// All_reduce in place. Throws Error. `clock` outlives the Work. `urgent` on all ranks or on none.
Work start_all_reduce(Communicator& communicator, StepClock& clock, const GradientBucket& bucket,
                      bool urgent);

/// Reduce_scatter: this rank's `count` elements of the sum go to `shard`, which may be their place in the
/// bucket.
Work start_reduce_scatter(Communicator& communicator, StepClock& clock, const GradientBucket& bucket,
                          void* shard, std::size_t count);

}  // namespace lockstep::internal
