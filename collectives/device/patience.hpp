// How the device layer's threads wait for what a GPU or a peer does: busily, then by yielding, then asleep.
#pragma once

#include <chrono>

#include "lib/base/env.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// A stream that gets to an operation within the first is waited for busily; after the second the thread
/// sleeps.
inline constexpr Nanos kBusyWait = 50'000, kYieldingWait = 1'000'000;
inline constexpr std::chrono::microseconds kPause{50};
/// How often a waiting thread looks for what peers have told.
inline constexpr Nanos kLookEvery = 10'000'000;

/// How long the worker may take to tell of a call whose kernel gave up.
inline constexpr Nanos kVerdict = 1'000'000'000;

/// How long a wait for one arrival keeps from looking at the others.
inline constexpr Nanos kMoment = 100'000;

/// Of a thread that waits while it looks at several things in turn.
class Patience {
 public:
  explicit Patience(Nanos busy = kBusyWait) : busy_(busy) {}
  /// Something moved: what follows is waited for busily again.
  void restart() { start_ = real_env().now(); }
  /// Once within kLookEvery. Before pause().
  bool is_time_to_look();
  void pause() const;

 private:
  const Nanos busy_;
  Nanos start_ = real_env().now(), now_ = start_, looked_ = start_;
};

/// When what begins now and has `timeout` (0: none) ends.
Nanos end_after(Nanos timeout);

/// Why a stream of the library's own has not run what was enqueued.
Status kept_from_device();
/// Until `stream`, one of the library's own, has run what was enqueued; `timeout` at `end`. Nothing there
/// waits for a peer, but on the same connection to the device a stream may stand before it that is held.
Status await_stream(Backend& backend, DeviceStream stream, Nanos end);
/// The same after a failure: what moves ends within milliseconds, and what is stuck may be so for ever.
void let_end(Backend& backend, DeviceStream stream);

}  // namespace lockstep::internal
