#include "ddp/open_step.hpp"

#include <algorithm>
#include <span>

namespace lockstep::internal {
namespace {

/// What the sizes of the ranks' batches make of their gradients, with ReducerOptions::weighted.
struct SampleWeight {
  bool average = true;  // Divide by the world size.
  double factor = 1;    // Multiplies the rank's gradients before they are summed.
};

/// `samples` of each rank, not all 0. With equal weights the average over samples is that over ranks
/// (`average` says whether that is asked for), without a pass over the gradients: but not with a hook, whose
/// error feedback adds what steps have left to gradients of others, and must find all of one weight.
SampleWeight weight_of(std::span<const std::uint64_t> samples, int rank, const ReducerOptions& options) {
  const bool equal = std::all_of(samples.begin(), samples.end(), [&](auto n) { return n == samples[0]; });
  if (equal && !options.hook) return {options.average, 1};
  double total = 0;
  for (const std::uint64_t n : samples) total += static_cast<double>(n);
  return {false, static_cast<double>(samples[static_cast<std::size_t>(rank)]) / total};
}

}  // namespace

bool open_step(StepState& step, ClosingExchange& closing, std::uint64_t samples, int rank,
               const ReducerOptions& options) {
  const auto all = closing.gather_words(GatheringCall::begin_step, {&samples, 1});
  const auto without = static_cast<std::size_t>(std::count(all.begin(), all.end(), std::uint64_t{0}));
  if (without == all.size() || (without > 0 && options.uneven == UnevenInputs::stop)) return false;
  step.opened = true;
  step.shadowing = samples == 0;
  // What a micro-batch under no_sync has left counts for nothing now.
  if (step.shadowing) step.forget_gradients();
  if (options.weighted) {
    const SampleWeight weight = weight_of(all, rank, options);
    step.average = weight.average;
    step.factor = weight.factor;
  }
  return true;
}

}  // namespace lockstep::internal
