// Locks on single bytes of a file, owned by an open file description (fcntl(2), F_OFD_SETLK): two opens in
// one process exclude each other, and the kernel drops the locks with the last descriptor.
#pragma once

#include <cstdint>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

enum class LockKind : std::uint8_t { shared, exclusive };

/// Takes the lock on byte `at`, and converts one of the other kind that is held already. False when another
/// holds it. Nothing here waits for that: no kernel call does so with a deadline, and the other may be a
/// process that is stopped.
Result<bool> try_lock_byte(const Fd& file, std::int64_t at, LockKind kind);
void unlock_byte(const Fd& file, std::int64_t at) noexcept;

}  // namespace lockstep::internal
