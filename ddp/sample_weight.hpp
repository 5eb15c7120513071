// What the sizes of the ranks' batches make of their gradients, with ReducerOptions::weighted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace lockstep::internal {

struct SampleWeight {
  bool average = true;  ///< Divide by the world size.
  double factor = 1;    ///< Multiplies the rank's gradients before they are summed.
};

/// `samples` of each rank, not all 0. With equal weights the average over samples is that over ranks
/// (`average` says whether that is asked for), without a pass over the gradients.
inline SampleWeight weight_of(std::span<const std::uint64_t> samples, int rank, bool average) {
  if (std::all_of(samples.begin(), samples.end(), [&](auto n) { return n == samples[0]; }))
    return {average, 1};
  double total = 0;
  for (const std::uint64_t n : samples) total += static_cast<double>(n);
  return {false, static_cast<double>(samples[static_cast<std::size_t>(rank)]) / total};
}

}  // namespace lockstep::internal
