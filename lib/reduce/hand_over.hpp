// HandOver: copies to memory that other cores have read before and will read next, the one way or the other.
#pragma once

#include <cstddef>

#include "lib/base/env.hpp"

namespace lockstep::internal {

/// How what a core writes reaches the cores that read it. Ordinary stores claim each line from the caches
/// that hold it, one after the other: between cores that share a last-level cache 3.6 us for 32 KiB, or 0.9
/// where the readers have lost the lines meanwhile; between others 19. Non-temporal stores claim nothing and
/// take 1.4 us everywhere, but then the lines come from memory, which the reader pays: 2.2 us instead of 0.8
/// where the cores share a cache, and no more than otherwise where they do not. Nobody tells which cores
/// these are, and the host of a virtual machine changes them while a job runs. So both are tried now and
/// then. (Two ways of a call are tried likewise by collectives/engine/pull_trials.hpp, where ranks have to
/// agree.)
///
/// Not thread-safe. `env` outlives it.
class HandOver {
 public:
  explicit HandOver(Env& env) : env_(env) {}
  /// memcpy. The ranges do not overlap.
  void copy(void* destination, const void* source, std::size_t bytes) noexcept;
  bool streams() const { return streams_; }

 private:
  double time_per_byte(bool streamed, void* destination, const void* source, std::size_t bytes) noexcept;

  Env& env_;
  int turn_ = 0;                               // Copies since the trials began.
  double stores_cost_ = 0, streams_cost_ = 0;  // Of this time's trials, the better one.
  bool streams_ = false;
};

}  // namespace lockstep::internal
