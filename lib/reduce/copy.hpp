// Copies of payloads. Callers that move more than a few hundred bytes take one of these and not memcpy: see
// copy_bytes.
#pragma once

#include <cstddef>

namespace lockstep::internal {

/// memcpy, with two differences. It uses non-temporal stores from `nontemporal_threshold()` bytes up, or for
/// any size when `past_caches` says that it is a part of so large a copy. And it has no bad alignments: the C
/// library copies large blocks with `rep movsb`, which some processors (Zen 3) do at 2 GB/s instead of 33
/// where the destination begins up to 31 bytes behind the source within their pages - as the caller's memory
/// from malloc does beside a page of ours. No bytes: the pointers may be null.
void copy_bytes(void* destination, const void* source, std::size_t bytes, bool past_caches = false) noexcept;

std::size_t nontemporal_threshold() noexcept;

}  // namespace lockstep::internal
