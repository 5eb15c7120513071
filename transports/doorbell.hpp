// Doorbell: how a rank that waits for memory sleeps and is woken, across processes.
//
// Protocol (model-checked in tests/model/doorbell.pml). The sleeper: 1. declares (store 1, seq_cst), 2. looks once more for what it waits for, 3. sleeps in futex_wait(1).
// The waker: 1. makes its change visible (release store), 2. seq_cst fence through the exchange, 3. exchanges 0; if it was 1, futex_wake. Either the sleeper's second look sees the
// change, or the waker's exchange sees the declaration.
#pragma once

#include <atomic>
#include <cstdint>

#include "lib/base/env.hpp"

namespace lockstep::internal {

struct Doorbell {
  std::atomic<std::uint32_t> asleep;  ///< 0 awake, 1 sleeps on the futex, 2 sleeps in poll on its bell descriptor.
};

/// Declares this rank asleep. Look once more for progress before sleep_on().
void declare_asleep(Doorbell& bell, bool in_poll) noexcept;
/// Takes the declaration back.
void declare_awake(Doorbell& bell) noexcept;
/// Sleeps on the futex until rung or `timeout` passed. Returns at once when it was rung since declare_asleep.
void sleep_on(Doorbell& bell, Nanos timeout) noexcept;
/// Wakes the owner if it declared itself asleep. `bell_fd`: the owner's eventfd, for a sleeper in poll (-1: none). Call after the
/// change was published.
void ring(Doorbell& bell, int bell_fd) noexcept;

}  // namespace lockstep::internal
