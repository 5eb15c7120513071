// Doorbell: how a rank that waits for memory sleeps and is woken, across processes.
//
// Protocol (model-checked in tests/model/doorbell.pml). The sleeper: 1. declares itself asleep, 2. looks once
// more for what it waits for, 3. sleeps in futex_wait, which returns at once unless the declaration still
// stands. The waker: 1. makes its change visible (release store), 2. seq_cst fence, 3. looks at the
// declaration, and takes it back and wakes the sleeper if there is one. Between 1 and 2 the sleeper has a
// fence too: either its second look sees the change, or the waker sees the declaration. A waker that finds
// nobody asleep writes nothing, so the word's cache line stays shared between all that ring it.
//
// A waker killed between taking the declaration back and waking leaves the sleeper asleep: whoever learns of
// a death calls wake().
#pragma once

#include <atomic>
#include <cstdint>

#include "lib/base/env.hpp"

namespace lockstep::internal {

struct Doorbell {
  /// 0 awake, 1 sleeps on the futex, 2 sleeps in poll on its bell descriptor.
  std::atomic<std::uint32_t> asleep;
};

/// Declares this rank asleep. Look once more for progress before sleep_on() or poll.
void declare_asleep(Doorbell& bell, bool in_poll) noexcept;
/// Takes the declaration back.
void declare_awake(Doorbell& bell) noexcept;
/// Sleeps on the futex until rung or `timeout` passed (kForever: no limit). Returns at once when it was rung
/// since declare_asleep, and now and then for no reason: look again after it.
void sleep_on(Doorbell& bell, Nanos timeout) noexcept;
/// Wakes the owner if it declared itself asleep. `bell_fd`: the owner's eventfd, for a sleeper in poll (-1:
/// none). Call after the change was published.
void ring(Doorbell& bell, int bell_fd) noexcept;
/// Wakes the owner whatever it declared. For changes that must not depend on a peer that may be dead: a loss,
/// an abort.
void wake(Doorbell& bell, int bell_fd) noexcept;

}  // namespace lockstep::internal
