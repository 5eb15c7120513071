// StepStatistics: where the time of a step went.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace lockstep {

/// Times and bytes of the last step that wait() ended with success.
struct StepStatistics {
  std::uint64_t step = 0;                          ///< Steps ended so far; 0 before the first.
  std::chrono::nanoseconds first_ready_to_done{};  ///< From the first bucket's start to the end of wait().
  std::chrono::nanoseconds waited{};  ///< Inside wait(): what backward did not hide, and late peers.
  std::size_t bytes = 0;              ///< Gradient bytes reduced.
  int buckets = 0;
};

}  // namespace lockstep
