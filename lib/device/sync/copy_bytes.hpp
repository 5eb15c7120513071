// Threads of a kernel that copy side by side.
#pragma once

#include "lib/device/sync/packet_thread.hpp"

namespace lockstep::internal::sync {

/// The part of thread `thread` of `threads`, in accesses as wide as both places allow.
LOCKSTEP_BOTH void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes, std::uint64_t thread,
                              std::uint64_t threads) {
  const bool wide =
      (reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % kPacketPayload == 0;
  for (std::uint64_t at = thread * kPacketPayload; at < bytes; at += threads * kPacketPayload) {
    const std::uint64_t rest = bytes - at < kPacketPayload ? bytes - at : kPacketPayload;
    if (wide && rest == kPacketPayload) {
      cuda::store_vector(to + at, cuda::load_vector(from + at));
    } else {
      store_part(to + at, load_part(from + at, rest), rest);
    }
  }
}

}  // namespace lockstep::internal::sync
