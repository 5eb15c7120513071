// Words that streams write or wait for: numbers that rise for ever and wrap (WordOperation).
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::internal {

/// Of a word in pinned memory, for a thread. What the stream wrote before is visible to it.
inline bool has_reached(std::uint32_t& word, std::uint32_t number) {
  const std::uint32_t reached = std::atomic_ref(word).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(reached - number) >= 0;
}

/// Beyond the last number: ahead of all that are waited for, and not behind any by the words' arithmetic.
inline constexpr std::uint32_t kFarAhead = std::uint32_t{1} << 30;

}  // namespace lockstep::internal
